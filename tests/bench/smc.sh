#!/bin/bash
# ZRS, SMC-R and plain TCP between two machines, over the same Soft-RoCE: zrs bench, and unmodified
# redis and nginx. Counters of the kernels prove for each carrier that it carried the bytes and the
# others did not.
# rows: Z1 Z4 B4
# params: connect_timeout_ms=4000
# timeout: 1200
. "$(dirname "$0")/../lib/ktap.sh"
. "$(dirname "$0")/../two-vm/lib.sh"

ROUNDS=${ROUNDS:-7}
# length N: of a measurement, by the SCALE that was asked for (lib.sh has another one).
length() { awk -v n="$1" -v s="${BENCH_SCALE:-1}" 'BEGIN { print n * s }'; }
REQUESTS=$(printf '%.0f' "$(length 10000)")
DURATION=$(awk -v n="$(length 4)" 'BEGIN { printf "%d", n < 1 ? 1 : n }')
CARRIERS=(zrs smc tcp-plain)
MIB=$((1 << 20))
PACKET=4096
# For the guests, in front of a command.
GUEST=(env "REQUESTS=$REQUESTS" "DURATION=$DURATION" /zrs/tests/bench/smc-guest)

# look: by how much A's counters have grown since the last look, in GREW.
declare -A LAST GREW
look() {
	local name n
	A /zrs/tests/bench/smc.py counts >"$TMP/counts" || { cat "$TMP/counts"; return 1; }
	while IFS='=' read -r name n; do
		[[ $n =~ ^[0-9]+$ ]] || { echo "$name"; continue; }
		GREW[$name]=$((n - ${LAST[$name]:-0}))
		LAST[$name]=$n
	done <"$TMP/counts"
}
# carried CARRIER BYTES: since the last look A has sent or received at least that by the carrier,
# and nothing by the others.
carried() {
	local zrs=0 smc=0
	look || return
	for n in "${!GREW[@]}"; do echo "$n: ${GREW[$n]}"; done
	case $1 in
	zrs) zrs=$2 ;;
	smc) smc=$2 ;;
	esac
	by zrs_bytes "$zrs" && by smc_bytes "$smc" && [ "${GREW[smc_fallbacks]}" = 0 ]
}
# by COUNTER LEAST: it has grown by that; not at all, if that is 0.
by() { if [ "$2" = 0 ]; then [ "${GREW[$1]}" = 0 ]; else [ "${GREW[$1]}" -ge "$2" ]; fi; }
# bulk CARRIER: 64 MiB go by it, in packets of RDMA or segments of TCP as large as those.
bulk() {
	local bytes=$((64 * MIB)) rdma tcp
	look || return
	A zrs bench --client "$ADDR_B" --carriers "${1%-plain}" --only throughput --sizes 1M --messages 64 --rounds 1 ||
		return
	carried "$1" "$bytes" || return
	rdma=${GREW[rdma_packets]} tcp=${GREW[tcp_segments]}
	# Acknowledgements come the other way, and a message of the control connection now and then.
	case $1 in
	tcp-plain) [ "$tcp" -ge $((bytes / PACKET)) ] && [ "$rdma" -lt 100 ] ;;
	*) [ "$rdma" -ge $((bytes / PACKET)) ] && [ "$tcp" -lt 100 ] ;;
	esac
}
# bench NAME ARGS...: zrs bench with these, in rounds; samples are in NAME.jsonl.
bench() {
	local name=$1
	shift
	start "$name" A "" zrs bench --client "$ADDR_B" --carriers zrs,smc,tcp --rounds "$ROUNDS" \
		--seconds "$(length 0.4)" --samples "/results/$name.jsonl" "$@"
	ended "$name" 360 && ! grep 'left out' "$TMP/$name" && cat "$PAIR/A/$name.jsonl" >>"$PAIR/samples.jsonl" && return
	show "$name"
	return 1
}
# program ROUND CARRIER PROGRAM READY BYTES UNIT NAME: the server says READY; the client moves BYTES
# at least.
program() {
	local round=$1 carrier=$2 program=$3 ready=$4 bytes=$5 unit=$6 what=$7 rc=0 value
	start server B "$ready" "${GUEST[@]}" server "$program" "$carrier" || return
	look || rc=1
	start client A "" "${GUEST[@]}" client "$program" "$carrier" "$ADDR_B"
	ended client 60 || rc=$?
	stop server TERM
	[ "$rc" = 0 ] || { show client; return "$rc"; }
	carried "$carrier" "$bytes" || return
	value=$(tail -1 "$TMP/client")
	[[ $value =~ ^[0-9.]+$ ]] || { show client; return 1; }
	printf '%s\t%s\t%s\t%s\t%s\n' "$round" "$what" "$carrier" "$value" "$unit" >>"$PAIR/programs.tsv"
}
# programs ROUND PROGRAM READY BYTES UNIT NAME: by each carrier; they take turns in being the first.
programs() {
	local round=$1 i carrier
	shift
	for i in 0 1 2; do
		carrier=${CARRIERS[(i + round) % 3]}
		check "$5, by $carrier, round $round" program "$round" "$carrier" "$@"
	done
}

ktap_start
for host in A B; do
	check "$host has SMC, and a NIC without offloads" on "$host" "${GUEST[@]}" host
done
start server B "listening on" zrs bench --server "$ADDR_B:7400" || ktap_bail "server"
for carrier in "${CARRIERS[@]}"; do check "64 MiB go by $carrier and by nothing else" bulk "$carrier"; done
[ "$KTAP_FAILED" = 0 ] || ktap_bail "what would be measured is something else"

look
check "throughput of 64 KiB" bench large --only throughput --sizes 64k
check "throughput of 1 MiB, round trips of 64 B, connections" bench quick --quick --only throughput,latency,connect
check_eq "SMC never fell back to TCP" 0 "$(look && echo "${GREW[smc_fallbacks]}")"
stop server

for round in $(seq "$ROUNDS"); do
	programs "$round" redis-1 "Ready to accept" 1000000 1/s "redis, SET of 512 B, 30 clients"
	programs "$round" redis-100 "Ready to accept" 1000000 1/s "redis, SET of 512 B, 30 clients, pipelines of 100"
	programs "$round" nginx-1000 "start worker process" 100000 1/s "nginx, file of 1 kB, 16 connections"
	programs "$round" nginx-1000000 "start worker process" 2000000 1/s "nginx, file of 1 MB, 16 connections"
done
ktap_done
