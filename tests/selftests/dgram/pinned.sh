#!/bin/bash
# Datagrams that are sent from the program's pages: nothing is copied, a call returns when the device has completed the
# send, MSG_ZEROCOPY is told of as with UDP, and no page stays pinned: of memory that is not there, of a program that
# is killed, unmaps or forks during the call, and when the link is lost. A link that is stuck has one call wait, for
# dead_ms at most.
# hosts: none
# rows: Z7 Z4 B2 L5
# debug: full
# test-module: tests/lib/copycount
# params: ack_timeout_ms=4000 retry_count=6 dgram_stall_ms=5000
# timeout: 300
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../../lib/hostile.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
hostile_up || ktap_bail "hosts on a bridge"
pinned() {
	# The bridge loses the frames, so that the device in A waits for acknowledgements.
	check_lines python3 "$(dirname "$0")/pinned.py" "$1" \
		"bridge -n zrsL link set dev lb state 0" "bridge -n zrsL link set dev lb state 3"
	check "$1: no page stays pinned" unpinned
}
if insmod /zrs/build/tests/lib/copycount/copycount.ko; then
	at_end "rmmod copycount"
	pinned copies
else
	ktap_skip "copies" "nothing to count with"
fi
for case in contents absent told waits lost; do
	pinned "$case"
done
check "the module can go" zrs_unload
if zrs_load ack_timeout_ms=60000 retry_count=6 heartbeat_ms=0 dead_ms=3000; then
	pinned dead
	check "the module can go again" zrs_unload
else
	ktap_fail "the module loads again"
fi
ktap_done
