#!/bin/bash
# Mapped receives of datagrams: of more than 16 KiB the full blocks are mapped, the rest is copied; dgram_lend_percent
# limits the lent blocks; no device writes into one, no byte of an earlier datagram shows, and each comes back:
# from recv(), close(), a killed program, a pipe. They outlive the link, the device and the module.
# hosts: own
# rows: Z7 Z3 B2 B9 L5
# debug: full
# params: pool_mib=16 blocks=512 link_credit=64 dgram_stall_ms=5000
# timeout: 300
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
lent() { check_lines python3 "$(dirname "$0")/lent.py" "$@"; }
for case in sizes calls limit mixed filtered older held ends reuse; do
	lent "$case"
	check "$case: no page stays pinned" unpinned
done
# A reservation of main memory, or a block with unread data, would be left.
check "nothing is leaked" zrs_idle
lent device "rdma link delete rxeB" "ip netns exec zrsB rdma link add rxeB type rxe netdev vb" \
	"rdma link delete rxeA" "ip netns exec zrsA rdma link add rxeA type rxe netdev va"
check "nothing is leaked with the devices" zrs_idle
lent unload
check "the module loads again" zrs_load
ktap_done
