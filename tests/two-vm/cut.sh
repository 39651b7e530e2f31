#!/bin/bash
# The network loses every packet for a while. Shorter than the links' patience: transfers go on,
# unharmed. Longer: both sides' sockets report it, and when the network is mended connections work.
# rows: B12 B9 E5
# params: connect_timeout_ms=4000 ack_timeout_ms=500 retry_count=6
# timeout: 240
. "$(dirname "$0")/../lib/ktap.sh"
. "$(dirname "$0")/lib.sh"

BOUND=10

ktap_start
# traffic EXPECT-SENDER EXPECT-RECEIVER: A sends to B and B to A, each on a separate link, and both
# ways on each.
traffic() {
	start inB B "listening on" zrs-selftest stream-recv --listen "$ADDR_B:7001" --expect "$2" &&
		start inA A "listening on" zrs-selftest stream-recv --listen "$ADDR_A:7002" --expect "$2" --ring &&
		start outB B "listening on" zrs-selftest stream-send --listen "$ADDR_B:7003" --expect "$1" &&
		start outA A "listening on" zrs-selftest stream-send --listen "$ADDR_A:7004" --expect "$1" --chunk 3000 &&
		start toB A sending zrs-selftest stream-send "$ADDR_B:7001" --expect "$1" &&
		start toA B sending zrs-selftest stream-send "$ADDR_A:7002" --expect "$1" &&
		start fromB A receiving zrs-selftest stream-recv --connect "$ADDR_B:7003" --expect "$2" &&
		start fromA B receiving zrs-selftest stream-recv --connect "$ADDR_A:7004" --expect "$2"
}
received() { on "$1" zrs links --json | tr ',{}' '\n' | sed -n 's/^"rx_bytes"://p' | awk '{ n += $1 } END { print n }'; }
# more HOST BYTES: more than that has arrived.
more() { [ "$(received "$1")" -gt "$2" ]; }

traffic eof eof || ktap_bail "traffic"
for i in 1 2; do
	check "cut $i of 1.5 s" wire_cut
	sleep 1.5
	at_a=$(received A) at_b=$(received B)
	check "mended" wire_mend
	check_within "A receives again" 20 more A "$((at_a + 2000000))"
	check_within "B as well" 20 more B "$((at_b + 2000000))"
done
for name in toA toB outA outB; do stop "$name"; done
for name in inA inB fromA fromB; do
	check_ended "cut twice for a short time: every byte is there ($name)" "$name" 20
	ktap_say "$(grep '^# ' "$TMP/$name")"
done

traffic reset reset || ktap_bail "traffic"
sleep 1
check "cut for long" wire_cut
t0=$SECONDS
for name in toA toB outA outB; do
	check_ended "ECONNRESET for a sender, either side ($name)" "$name" $BOUND
done
for name in fromA fromB inA inB; do
	check_ended "and for a receiver ($name)" "$name" $BOUND
done
ktap_say "all of them after $((SECONDS - t0)) s"
says_why() { on "$1" dmesg | grep -q " lost: "; }
check "A's log says why" says_why A
check "B's, too" says_why B
check_within "A has no link left" 15 no_links A
check_within "B has none" 15 no_links B
start listenA A holding zrs-selftest hold --what listen --addr "$ADDR_A:7900" || ktap_bail "listener"
check_lines B zrs-selftest refused "$ADDR_A:7900" --errno ETIMEDOUT,EHOSTUNREACH --within-ms "$((6000 * SCALE))"
check "mended" wire_mend
check_within "B connects to A" 15 B zrs-selftest stream-send "$ADDR_A:7900" --bytes 4k --expect eof
check_pair "and A to B" xfer --sizes 1,5000,300000 --both
ktap_done
