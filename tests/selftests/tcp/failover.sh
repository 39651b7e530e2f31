#!/bin/bash
# The interface of host A is a bond of two ports. The second port takes over: the link over the bond ends, and the
# module forgets which hosts have no ZRS.
# rows: B14 B7 E5
# hosts: none
# params: connect_timeout_ms=6000 fallback_ms=3000
# debug: full
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
modprobe -a bonding bridge 2>/dev/null || {
	ktap_skip "a bond's other port takes over" "this kernel has no bonding or no bridge"
	ktap_done
}
at_end hosts_down
hosts_bridged && rdma link delete "$DEV_A" && rdma link delete "$DEV_C" || ktap_bail "three hosts on a bridge"
# Host C has neither ZRS nor RDMA then. Host A gets a second wire to the bridge, and a bond of both.
ip link add va2 netns zrsA mtu 9000 type veth peer name la2 netns zrsL && ip -n zrsL link set la2 master br0 up &&
	ip -n zrsA -batch - <<-'BATCH' && host_up zrsA bond0 "$ADDR_A" "$DEV_A" || ktap_bail "a bond"
		link set va down
		addr flush dev va
		link add bond0 mtu 9000 type bond mode active-backup fail_over_mac active miimon 100
		link set va master bond0
		link set va2 master bond0
		link set va up
		link set va2 up
		link set bond0 type bond active_slave va
	BATCH
check_lines A python3 "$(dirname "$0")/failover.py"
ktap_done
