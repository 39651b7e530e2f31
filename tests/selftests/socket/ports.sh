#!/bin/bash
# The rules for sharing ports, compared with TCP's; separate namespaces.
# hosts: own
# rows: Z1 B5 B6
# debug: full
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
# tagged TAG CMD...: the lines of CMD say whose they are.
tagged() {
	local tag=$1
	shift
	check_lines bash -o pipefail -c '"${@:2}" | sed -E "s/^((not )?ok - )/\1$1: /"' - "$tag" "$@"
}
tagged ZRS ip netns exec zrsA zrs-selftest ports --local "$ADDR_A"
tagged TCP ip netns exec zrsA zrs-selftest --protocol 6 ports --local "$ADDR_A"

# The same port in two namespaces, on all addresses.
start one A "listening on" zrs-selftest serve 0.0.0.0:7000 || ktap_bail "serve"
start two B "listening on" zrs-selftest xfer --server 0.0.0.0:7000 --sizes 1 || ktap_bail "the other namespace"
check_fails "not twice in one" EADDRINUSE B zrs-selftest serve 0.0.0.0:7000
check "who connects to B" A zrs-selftest xfer --client "$ADDR_B:7000" --sizes 1
check_ended "is connected to B" two
stop one
check "nothing is left behind" zrs_idle

# A namespace goes with its last socket: then its end of a veth pair goes, and so the other one.
at_end "ip netns del zrsX"
ip netns add zrsX
ip link add vx type veth peer name vy netns zrsX
ip -n zrsX -batch - <<-'BATCH'
	link set lo up
	addr add 10.99.0.1/24 dev vy
	link set vy up
BATCH
check_lines ip netns exec zrsX zrs-selftest ports --local 10.99.0.1 --bare
gone() {
	local _
	ip netns del zrsX
	for _ in $(seq 1 $((100 * PATIENCE))); do
		[ -e /sys/class/net/vx ] || return 0
		nap 0.1
	done
	return 1
}
check "a namespace without sockets can go" gone
ktap_done
