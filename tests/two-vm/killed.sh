#!/bin/bash
# A machine loses its power in the middle of everything. The other one's sockets report it in a time
# that parameters set, and when the machine is back, with the same address, connections work.
# rows: B12 B9 E4 E5
# params: connect_timeout_ms=4000 ack_timeout_ms=500 retry_count=6
# timeout: 240
. "$(dirname "$0")/../lib/ktap.sh"
. "$(dirname "$0")/lib.sh"

# The parameters give 7 times 0.54 s; the rest is for the emulated machines.
BOUND=10

ktap_start
start serve A "listening on" zrs-selftest serve "$ADDR_A:7000" &&
	start in1 A "listening on" zrs-selftest stream-recv --listen "$ADDR_A:7001" --expect eof &&
	start in2 A "listening on" zrs-selftest stream-recv --listen "$ADDR_A:7002" --expect eof --stall &&
	start out1 A "listening on" zrs-selftest stream-send --listen "$ADDR_A:7003" --expect eof &&
	start out2 A "listening on" zrs-selftest stream-send --listen "$ADDR_A:7004" --expect eof ||
	ktap_bail "programs in A"
# All that B has opened is on one link.
start sender B sending zrs-selftest stream-send "$ADDR_A:7001" --expect reset &&
	start blocked B sending zrs-selftest stream-send "$ADDR_A:7002" --expect reset &&
	start receiver B receiving zrs-selftest stream-recv --connect "$ADDR_A:7003" --expect reset &&
	start ring B receiving zrs-selftest stream-recv --connect "$ADDR_A:7004" --expect reset --ring &&
	start idle B waiting zrs-selftest lost "$ADDR_A:7000" ||
	ktap_bail "programs in B"
# And a connection that A has opened, on a separate link, where B has nothing to send.
start accepted B "listening on" zrs-selftest stream-recv --listen "$ADDR_B:7005" --expect reset &&
	start tell A sending zrs-selftest stream-send "$ADDR_B:7005" --expect eof --bytes 4k --linger &&
	says accepted receiving || ktap_bail "A connects to B"
sleep 2
ktap_say "$(B zrs links)"

vm_kill A
t0=$SECONDS
check_lines B zrs-selftest refused "$ADDR_A:7000" --errno ETIMEDOUT,ECONNRESET --within-ms "$((6000 * SCALE))"
check_ended "a sender in mid-transfer gets ECONNRESET" sender $BOUND
check_ended "one that waits for room as well" blocked $BOUND
check_ended "and a receiver, after what had arrived" receiver $BOUND
check_ended "and one with a mapped window" ring $BOUND
check_ended "and an idle connection, by poll()" idle $BOUND
check_ended "and one on the link that A had made" accepted $BOUND
ktap_say "all of them after $((SECONDS - t0)) s"
for name in sender receiver ring accepted; do ktap_say "$(grep '^# ' "$TMP/$name")"; done
check_within "B has no link left" 15 no_links B
check_lines B zrs-selftest refused "$ADDR_A:7000" --errno ETIMEDOUT,EHOSTUNREACH --within-ms "$((6000 * SCALE))"

ktap_say "A comes back"
check "A boots" vm_up A
A zrs_load connect_timeout_ms=4000 ack_timeout_ms=500 retry_count=6
start serve A "listening on" zrs-selftest serve "$ADDR_A:7000" || ktap_bail "serve"
check_within "B connects to A again" 30 B zrs-selftest poll --peer "$ADDR_A:7000" --local "$ADDR_B" --refused "$ADDR_A:7999"
check_pair "and A to B" xfer --sizes 1,5000,300000 --both
ktap_done
