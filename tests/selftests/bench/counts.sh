#!/bin/bash
# Costs of a message: copies, work requests, completions, system calls, instructions, atomic
# instructions and context switches are within the bounds of the baseline.
# rows: Z4 Z6 Z8 B2 B3 B20
# params: copy_tail_kib=0
# debug: no
# insns: yes
# timeout: 300
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/insns.sh"

BASELINE=$KTAP_LIB/../baseline.json
KEY=$(baseline_key)
INSNS=/results/insns

ktap_start
# Memory of programs comes in pieces of 64 KiB at least, however fragmented the rest is. A request takes 32 pieces and
# 256 KiB, so a MiB needs four WRITEs; eight if pages are not merged.
pieces=/sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled
echo always >$pieces || ktap_bail "no memory in larger pieces"
at_end "echo never >$pieces"
# System calls are counted through tracefs.
traced='mount -t tracefs tracefs /sys/kernel/tracing 2>/dev/null; exec "$@"'
start server B "listening on" bash -c "$traced" - zrs bench --server "$ADDR_B:7400" || ktap_bail "the server"
measure() { # measure SIZE MESSAGES
	A bash -c "$traced" - zrs bench --client "$ADDR_B" --only cost --carriers zrs,zrs-ring,zrs-zerocopy,zrs-mapped --rounds 3 \
		--sizes "$1" --messages "$2" --samples "$TMP/samples"
}
check "messages of 1 MiB" measure 1M 24
check "messages of 64 bytes" measure 64 2000
check_lines zrs-bench-report counts "$TMP/samples" "$BASELINE" --key "$KEY"
stop server

if [ ! -e $INSNS ]; then
	ktap_skip "instructions, atomic ones and context switches" "the processor runs the guest itself, and counts nothing"
	ktap_done
fi
if [ -n "${DEVICE:-}" ]; then
	ktap_skip "instructions, atomic ones and context switches" "they depend on the device, which is that of $DEVICE here"
	ktap_done
fi
counted_code >/results/ranges
at_end "rm -f /results/ranges"
ktap_say "atomic instructions of $(tr '\n' ' ' </results/ranges)"

# oneway NAME N PROTOCOL ARGS...: counts of one message of a batch of N.
oneway() {
	local name=$1 n=$2 protocol=$3
	shift 3
	PORT=$((PORT + 1))
	nsenter --net=/run/netns/zrsA zrs-selftest --limit 60 ${protocol:+--protocol "$protocol"} oneway \
		--netns /run/netns/zrsB --to "$ADDR_B:$PORT" --insns $INSNS --messages "$n" "$@" >"$TMP/counts" || return
	awk -v n="$n" '/^[a-z_]+ -?[0-9]+$/ { print $1, $2 / n }' "$TMP/counts" >"$TMP/$name"
}
# each CARRIER PROTOCOL SIZE N: figures of one message, less those of its acknowledgment. Threads that have to wait
# only add to them, so of several measurements that with the fewest instructions counts.
each() {
	local least='' now tries=1
	# A MiB has many waits: less often do none of them add to it.
	[ "$1" != zrs ] || tries=$([ "$3" = 1M ] && echo 8 || echo 3)
	while [ $((tries--)) != 0 ]; do
		oneway once "$4" "$2" --size "$3" || return
		now=$(awk '$1 == "instructions" { printf "%d", $2 }' "$TMP/once")
		[ -z "$least" ] || [ "$now" -lt "$least" ] || continue
		least=$now
		cp "$TMP/once" "$TMP/message"
	done
	awk -v size="${3,,}" -v carrier="$1" '
		NR == FNR { ack[$1] = $2 / 2; next }
		{ printf "%s_%s %s %.2f\n", $1, size, carrier, $2 - ack[$1] }
	' "$TMP/acks" "$TMP/message" >>"$TMP/figures"
}
check "acknowledgments alone, twice" oneway acks 32 "" --size 1 --unix
ktap_say "$(paste -sd' ' "$TMP/acks")"
for size in 64 1k 4k 1M; do
	n=32
	[ $size != 1M ] || n=2
	check "$size one way" each zrs "" $size $n
	check "$size one way, TCP" each tcp 6 $size $n
done
check_lines zrs-bench-report figures "$TMP/figures" "$BASELINE" --key "$KEY"
ktap_done
