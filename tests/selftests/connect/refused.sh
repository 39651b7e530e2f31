#!/bin/bash
# Connections without a listener, blocking and non-blocking, each by its errno and in time. The
# decision time is the parameter connect_timeout_ms of 1 s.
# hosts: own
# debug: full
# rows: Z1 E1 E4 E5 B6
# params: connect_timeout_ms=1000
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
refused() {
	ktap_say "$1"
	shift
	check_lines "$@"
}
# A refusal by the peer or by the host itself comes long before the decision time. A busy machine
# takes longer now and then, so one of several tries has to keep the limit.
SOON=(--within-ms $((500 * SCALE)))
DECIDED=(--least-ms 1000 --within-ms $((2000 * SCALE)))
refused "a host where nobody listens at all: ECONNREFUSED" A zrs-selftest refused "$ADDR_B:7000" \
	--errno ECONNREFUSED "${SOON[@]}"
start serve B "listening on" zrs-selftest serve "$ADDR_B:7000" || ktap_bail "serve"
refused "a host where somebody listens at another port: ECONNREFUSED" A zrs-selftest refused "$ADDR_B:7001" \
	--errno ECONNREFUSED "${SOON[@]}"
refused "no route: ENETUNREACH" A zrs-selftest refused 192.0.2.1:7000 --errno ENETUNREACH "${SOON[@]}"
ip -n zrsA route add unreachable 192.0.3.0/24
refused "a route that says so: EHOSTUNREACH" A zrs-selftest refused 192.0.3.1:7000 --errno EHOSTUNREACH "${SOON[@]}"
# The first attempt's link is given up a moment after it, and the second attempt with it.
refused "no host there: ETIMEDOUT" A zrs-selftest refused 10.77.0.99:7000 --errno ETIMEDOUT --within-ms $((2000 * SCALE))
# A host that does not answer: its interface is up and its packets go nowhere.
ip -n zrsA neigh replace 10.77.0.98 lladdr 02:00:00:00:00:98 dev va
refused "a host that is dead: ETIMEDOUT" A zrs-selftest refused 10.77.0.98:7000 --errno ETIMEDOUT "${DECIDED[@]}"
for broadcast in 255.255.255.255 "${ADDR_B%.*}.255"; do
	refused "broadcast to $broadcast: ENETUNREACH" A zrs-selftest refused "$broadcast:7000" --errno ENETUNREACH "${SOON[@]}"
done

# Namespaces without an RDMA device: one with nothing at all, one with a way to B.
ip netns add zrsC
at_end "ip netns del zrsC"
ip -n zrsC link set lo up
ip link add vc netns zrsC type veth peer name vd netns zrsB
ip -n zrsC addr add 10.78.0.1/24 dev vc
ip -n zrsC link set vc up
ip -n zrsB addr add 10.78.0.2/24 dev vd
ip -n zrsB link set vd up
refused "no RDMA device, loopback: ENODEV" C zrs-selftest refused 127.0.0.1:7000 --errno ENODEV "${SOON[@]}"
refused "no RDMA device, a route: ENODEV" C zrs-selftest refused 10.78.0.2:7000 --errno ENODEV "${SOON[@]}"
refused "no RDMA device, no route: ENETUNREACH" C zrs-selftest refused 192.0.2.1:7000 --errno ENETUNREACH "${SOON[@]}"
refused "device on another interface: ENODEV" B zrs-selftest refused 10.78.0.1:7000 --errno ENODEV "${SOON[@]}"
check_eq "A is not seen from C: no links" '{"links":[]' "$(C zrs links --json | sed 's/,"table":.*//')"

# The listener's interface of B is another host's business.
check_pair "and after all that a connection works" xfer --sizes 1,100000 --both
ktap_done
