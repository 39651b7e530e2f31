#!/bin/bash
# A machine loses its power and comes back while nothing is being sent to it: no peer has noticed.
# The links from before end as soon as something is sent, or when it makes a new link.
# rows: B12 B9
# params: connect_timeout_ms=4000 ack_timeout_ms=500 retry_count=6 heartbeat_ms=600000
# timeout: 240
. "$(dirname "$0")/../lib/ktap.sh"
. "$(dirname "$0")/lib.sh"

ktap_start
# both_idle: idle connections in both directions, on two links.
both_idle() {
	start serveA A "listening on" zrs-selftest serve "$ADDR_A:7000" &&
		start ours B waiting zrs-selftest lost "$ADDR_A:7000" &&
		start theirs B "listening on" zrs-selftest stream-recv --listen "$ADDR_B:7001" --expect reset &&
		start tell A sending zrs-selftest stream-send "$ADDR_B:7001" --expect eof --bytes 4k --linger &&
		says theirs receiving
}
again() { vm_kill A && vm_up A && A zrs_load connect_timeout_ms=4000 ack_timeout_ms=500 retry_count=6; }

both_idle || ktap_bail "idle connections"
sleep 3 # everything is acknowledged
check "A loses its power and comes back" again
check_eq "B does not know of it" "2" "$(links B)"
start serveA A "listening on" zrs-selftest serve "$ADDR_A:7000" || ktap_bail "serve"
check_within "B connects to A, as soon as the old link has ended" 30 B zrs-selftest poll --peer "$ADDR_A:7000" \
	--local "$ADDR_B" --refused "$ADDR_A:7999"
check_ended "the idle connection of the old link is reset" ours
check_ended "and that of the link that A had made" theirs
stop serveA

both_idle || ktap_bail "idle connections"
sleep 3
check "A loses its power again" again
check_pair "A comes back and connects to B" xfer --sizes 1,5000,300000 --both
check_ended "the idle connection of A's old link is reset" theirs
check_ended "and that of B's old link" ours
check_pair "connections go on" xfer --sizes 5000,300000 --ring
ktap_done
