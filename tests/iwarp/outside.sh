#!/bin/bash
# siw in a network namespace other than the first: it would make its TCP sockets in the first one. The
# module does not use it, and says why; the one of the first namespace works on.
# rows: B17
# params: connect_timeout_ms=4000
# timeout: 60
. "$(dirname "$0")/../lib/ktap.sh"
. "$(dirname "$0")/../two-vm/lib.sh"

LINE='siwN: cannot be used: siw works in the first network namespace only'
ktap_start
at_end "A eval 'rdma link delete siwN; ip netns del other'"
check "A has a namespace with a device of siw" A eval 'ip netns add other &&
	ip link add na netns other type veth peer name nb netns other &&
	ip -n other addr add 10.79.0.1/24 dev na && ip -n other link set na up && ip -n other link set nb up &&
	ip -n other link set lo up && ip netns exec other rdma link add siwN type siw netdev na'
check_eq "a connect there" ENODEV "$(A ip netns exec other python3 -c '
import errno, socket
try:
    socket.socket(socket.AF_INET, socket.SOCK_STREAM, 253).connect(("10.79.0.1", 7000))
    print("connected")
except OSError as e:
    print(errno.errorcode[e.errno])
')"
A dmesg >"$TMP/dmesg"
check_eq "the log says why, once" 1 "$(grep -c "$LINE" "$TMP/dmesg")"
A zrs pool >"$TMP/pool"
check "zrs pool has it" grep -q 'siwN.*cannot be used' "$TMP/pool"
check_pair "the first namespace is as before" xfer --sizes 1,300000 --both
ktap_done
