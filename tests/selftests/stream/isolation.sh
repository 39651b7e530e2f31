#!/bin/bash
# The page frames of a window: the frames given to the device are the frames that the program maps,
# they have no other owner until it unmaps them, and the next owner finds zeros. The frames are
# taken from kprobes on the functions that map them and on the functions that give them to the device.
# rows: Z3 Z5 B3 B11
# timeout: 90
# params: window_kib=256
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

TRACING=/sys/kernel/tracing
CONNS=8

# traced: begins to record the pages mapped to programs, and Soft-RoCE's registrations.
traced() {
	[ -e $TRACING/kprobe_events ] || return
	echo 'p:zrstest/mapped remap_pfn_range pfn=%dx size=%cx' >$TRACING/kprobe_events &&
		echo 'p:zrstest/registered rdma_rxe:rxe_set_page at=%si' >>$TRACING/kprobe_events &&
		at_end "echo 0 >$TRACING/events/zrstest/enable; echo >$TRACING/kprobe_events" &&
		echo >$TRACING/trace && echo 1 >$TRACING/events/zrstest/enable
}

# frames: for each mapping of a window its first frame, and where the kernel's map of all memory begins, by
# what was registered before it: Soft-RoCE's addresses are in that map. Fails if a registration has
# a gap.
frames() {
	local bytes at first=0 pages=0 pfn
	bytes=$(($(cat /sys/module/zrs/parameters/window_kib) << 10))
	while read -r what a b; do
		case $what in
		registered)
			at=$((a))
			[ $((pages % (bytes >> 12))) -gt 0 ] || first=$at
			[ "$at" -eq $((first + pages % (bytes >> 12) * 4096)) ] || return
			pages=$((pages + 1))
			;;
		mapped)
			[ $((b)) -eq $bytes ] || continue
			pfn=$((a))
			printf '%x %x\n' "$pfn" $((first - (pfn << 12)))
			;;
		esac
	done < <(sed -n 's/.*: \(mapped\|registered\): .*) [a-z]*=\(0x[0-9a-f]*\)\( size=\(0x[0-9a-f]*\)\)*$/\1 \2 \4/p' $TRACING/trace)
}

ktap_start
TRACED=
traced && TRACED=1
check_pair "$CONNS connections, one after the other" isolation --conns $CONNS
if [ "$TRACED" ]; then
	echo 0 >$TRACING/events/zrstest/enable
	frames >"$TMP/frames"
	check "each registration is of one piece of memory" [ $? -eq 0 ]
	maps=$(cut -d' ' -f2 "$TMP/frames" | sort -u)
	ktap_say "$(wc -l <"$TMP/frames") mappings, the kernel's map of all memory at $maps"
	# That begins at a multiple of a gigabyte, wherever it is.
	one() { [ "${#maps}" -eq 16 ] && [ $((0x$maps % (1 << 30))) -eq 0 ]; }
	if [ "${DEVICE:-}" = strict ]; then
		ktap_skip "the device writes to the frames that the programs map" "its addresses say nothing of the memory"
	else
		check "the device writes to the frames that the programs map" one
	fi
	first=$(head -1 "$TMP/frames" | cut -d' ' -f1)
	check "the first window's are mapped by its owner only" [ "$(grep -c "^$first " "$TMP/frames")" -eq 2 ]
	others=$(cut -d' ' -f1 "$TMP/frames" | sort -u | wc -l)
	check "the others' are used again: $others of them" [ "$others" -lt $CONNS ]
else
	ktap_skip "the frames" "this kernel has no kprobe events"
fi
check "no window is leaked" zrs_idle
ktap_done
