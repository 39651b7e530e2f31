#!/bin/bash
# Each allocation, mapping and verb of the worker that makes a device's pool fails once: the worker's next attempt
# makes it, sockets are made all the same, and the module unloads.
# hosts: own
# module: none
# rows: Z2 B9 B11
# debug: only
# timeout: 240
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

DIR=/sys/kernel/debug/zrs/fail_async
count() { zrs pool --json | jq '.pools | length'; }
by=5
[ "${TIER:-ci}" != full ] || by=1
# pools: waits until both devices have their pools.
pools() {
	local _
	for _ in $(seq 1 $((100 * PATIENCE))); do
		[ "$(count)" != 2 ] || return 0
		nap 0.1
	done
	echo "pools: $(count)"
	return 1
}
# left: what is left of the number, when no work item has it.
left() {
	local n=-1
	while [ "$n" -lt 0 ]; do n=$(cat $DIR/nth); done
	echo "$n"
}

ktap_start
mount -t debugfs debugfs /sys/kernel/debug 2>/dev/null
at_end "echo 0 >$DIR/nth"
check "loads" zrs_load pool_mib=4 window_kib=256 blocks=128 link_credit=32
check "both devices get their pools" pools
# A failure does not log its call trace.
for file in /sys/kernel/debug/{failslab,fail_page_alloc,zrs/fail_*}/verbose; do
	[ ! -e "$file" ] || echo 0 >"$file"
done
struck=0
for ((nth = 1; nth < 1000; nth += by)); do
	rdma link delete rxeB || ktap_bail "the device is gone"
	echo "$nth" >$DIR/nth
	ip netns exec zrsB rdma link add rxeB type rxe netdev vb || ktap_bail "a new device"
	A zrs-selftest hold --what socket >"$TMP/socket" 2>&1 || ktap_fail "a socket, with failure $nth: $(cat "$TMP/socket")"
	pools >"$TMP/pools" || ktap_fail "a pool, after failure $nth: $(cat "$TMP/pools")"
	rest=$(left)
	echo 0 >$DIR/nth
	[ "$rest" = 0 ] || break
	struck=$((struck + 1))
done
check "attempts that were disturbed: $struck" [ "$struck" -ge 10 ]
check "the last one was not" [ "$rest" -gt 0 ]
check "unloads" zrs_unload
ktap_done
