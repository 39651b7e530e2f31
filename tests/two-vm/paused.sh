#!/bin/bash
# A machine stands still for a while, as when it is moved or debugged. Shorter than the links'
# patience: nothing happens. Longer: the other side's sockets report it; when the machine goes on,
# its own do.
# rows: B12 B9 E5
# params: connect_timeout_ms=4000 ack_timeout_ms=500 retry_count=6
# timeout: 240
. "$(dirname "$0")/../lib/ktap.sh"
. "$(dirname "$0")/lib.sh"

BOUND=10

ktap_start
# traffic EXPECT-SENDER EXPECT-RECEIVER: B opens everything, so that all is on one link.
traffic() {
	start serve A "listening on" zrs-selftest serve "$ADDR_A:7000" &&
		start inA A "listening on" zrs-selftest stream-recv --listen "$ADDR_A:7001" --expect "$2" &&
		start outA A "listening on" zrs-selftest stream-send --listen "$ADDR_A:7002" --expect "$1" &&
		start waitA A "listening on" zrs-selftest stream-recv --listen "$ADDR_A:7003" --expect "$2" --ring &&
		start toA B sending zrs-selftest stream-send "$ADDR_A:7001" --expect "$1" &&
		start fromA B receiving zrs-selftest stream-recv --connect "$ADDR_A:7002" --expect "$2" --ring &&
		start quiet B sending zrs-selftest stream-send "$ADDR_A:7003" --expect "$1" --bytes 100k --linger &&
		start idle B waiting zrs-selftest lost "$ADDR_A:7000"
}

traffic eof eof || ktap_bail "traffic"
for i in 1 2; do
	check "pause $i: A stands still" vm_pause A
	sleep 1.5
	check "pause $i: and goes on" vm_go A
	sleep 2
done
for name in toA outA quiet; do stop "$name"; done
for name in inA fromA waitA; do
	check_ended "paused twice for a short time: every byte is there ($name)" "$name" 20
	ktap_say "$(grep '^# ' "$TMP/$name")"
done
stop serve
stop idle

traffic reset reset || ktap_bail "traffic"
sleep 1
check "A stands still for long" vm_pause A
t0=$SECONDS
for name in toA fromA quiet idle; do
	check_ended "B's sockets report it ($name)" "$name" $BOUND
done
ktap_say "all of them after $((SECONDS - t0)) s"
check_within "B has no link left" 15 no_links B
check_lines B zrs-selftest refused "$ADDR_A:7000" --errno ETIMEDOUT,EHOSTUNREACH --within-ms "$((6000 * SCALE))"
check "A goes on" vm_go A
t0=$SECONDS
for name in inA outA waitA; do
	check_ended "A's sockets report it ($name)" "$name" $BOUND
done
ktap_say "all of them after $((SECONDS - t0)) s"
check_within "B connects to A" 15 B zrs-selftest poll --peer "$ADDR_A:7000" --local "$ADDR_B" --refused "$ADDR_A:7999"
check_pair "and A to B" xfer --sizes 1,5000,300000 --both
ktap_done
