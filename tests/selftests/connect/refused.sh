#!/bin/bash
# Connections that nobody takes, blocking and non-blocking, each by its errno and in time. The
# decision time is the parameter connect_timeout_ms of 1 s; the limits leave room for emulation.
# rows: Z1 E1 E4 E5 B6
# timeout: 90
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
refused() {
	ktap_say "$1"
	shift
	check_lines "$@"
}
refused "a host where nobody listens at all: ECONNREFUSED" A zrs-selftest refused "$ADDR_B:7000" \
	--errno ECONNREFUSED --within-ms "$((5000 * SCALE))"
start serve B "listening on" zrs-selftest serve "$ADDR_B:7000" || ktap_bail "serve"
refused "a host where somebody listens at another port: ECONNREFUSED" A zrs-selftest refused "$ADDR_B:7001" \
	--errno ECONNREFUSED --within-ms "$((5000 * SCALE))"
refused "no route: ENETUNREACH" A zrs-selftest refused 192.0.2.1:7000 --errno ENETUNREACH --within-ms "$((5000 * SCALE))"
refused "no host there: EHOSTUNREACH or ETIMEDOUT" A zrs-selftest refused 10.77.0.99:7000 \
	--errno EHOSTUNREACH,ETIMEDOUT --within-ms "$((6000 * SCALE))"
# A host that does not answer: its interface is up and its packets go nowhere.
ip -n zrsA neigh replace 10.77.0.98 lladdr 02:00:00:00:00:98 dev va
refused "a host that is dead: EHOSTUNREACH or ETIMEDOUT" A zrs-selftest refused 10.77.0.98:7000 \
	--errno EHOSTUNREACH,ETIMEDOUT --within-ms "$((6000 * SCALE))"
refused "broadcast: ENETUNREACH" A zrs-selftest refused 255.255.255.255:7000 --errno ENETUNREACH,EACCES --within-ms "$((5000 * SCALE))"

# Namespaces without an RDMA device: one with nothing at all, one with a way to B.
ip netns add zrsC
at_end "ip netns del zrsC"
ip -n zrsC link set lo up
ip link add vc netns zrsC type veth peer name vd netns zrsB
ip -n zrsC addr add 10.78.0.1/24 dev vc
ip -n zrsC link set vc up
ip -n zrsB addr add 10.78.0.2/24 dev vd
ip -n zrsB link set vd up
C() { ip netns exec zrsC "$@"; }
refused "no RDMA device, loopback: ENODEV" C zrs-selftest refused 127.0.0.1:7000 --errno ENODEV --within-ms "$((5000 * SCALE))"
refused "no RDMA device, a route: ENODEV" C zrs-selftest refused 10.78.0.2:7000 --errno ENODEV --within-ms "$((5000 * SCALE))"
refused "no RDMA device, no route: ENETUNREACH" C zrs-selftest refused 192.0.2.1:7000 --errno ENETUNREACH --within-ms "$((5000 * SCALE))"
refused "device on another interface: ENODEV" B zrs-selftest refused 10.78.0.1:7000 --errno ENODEV --within-ms "$((5000 * SCALE))"
check_eq "A is not seen from C: no links" '{"links":[]' "$(C zrs links --json | sed 's/,"table":.*//')"

# The listener's interface of B is another host's business.
check_pair "and after all that a connection works" xfer --sizes 1,100000 --both
ktap_done
