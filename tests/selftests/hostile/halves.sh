#!/bin/bash
# More links than the device has blocks end in the middle of a message, one after the other, while
# another link stays: no block of the receive queues is lost, and none of the links waits for one.
# hosts: none
# rows: B17 E2 B9
# debug: full
# params: blocks=192 link_credit=32 connect_timeout_ms=5000
# timeout: 240
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/hostile.sh"

# Messages that found no receive, at B.
rnr() { cat /sys/class/infiniband/rxeB/ports/1/hw_counters/send_rnr_err; }
# few: blocks in use are those of one link, and spare ones, at once or soon.
few() {
	local n _
	for _ in $(seq 1 $((100 * PATIENCE))); do
		n=$(pool blocks)
		[ -n "$n" ] && [ "$n" -le $((32 + 64)) ] && return 0
		nap 0.2
	done
	return 1
}
# pool FIELD: of B's device.
pool() { zrs pool --json | tr '{}' '\n' | grep '"device":"rxeB"' | sed "s/.*\"$1\":\([0-9]*\).*/\1/"; }

ktap_start
hostile_up || ktap_bail "three hosts on a bridge"
before=$(rnr)
hostile named/half-messages
check_eq "messages that found no receive" "$before" "$(rnr)"
# The last of its links are taken down, and one with spare blocks is left at most.
check "blocks in use are those of one link, and spare ones" few
ktap_done
