# shellcheck shell=bash
# Two hosts in one guest: network namespaces zrsA and zrsB with a veth pair (MTU 9000) between
# them and a Soft-RoCE device in each. Sourced by the guest's scripts.
#
#   A CMD..., B CMD...   run a command in host A or B
#   hosts_up, hosts_down
#   hosts_plain          another pair of interfaces, whose packets are as Soft-RoCE's
#   hosts_bridged        instead of hosts_up: A, B and a third host C on a bridge
#   port a|b|c up|down   whether the bridge passes on what comes from and for the host

# These stay put: the selftests use them.
ADDR_A=10.77.0.1
ADDR_B=10.77.0.2
ADDR6_A=fd77::1
ADDR6_B=fd77::2
DEV_A=rxeA
DEV_B=rxeB
PLAIN_A=10.78.0.1
PLAIN_B=10.78.0.2
ADDR_C=10.77.0.3
DEV_C=rxeC
export ADDR_C DEV_C ADDR_A ADDR_B ADDR6_A ADDR6_B DEV_A DEV_B PLAIN_A PLAIN_B

# tests/vm/netns-exec.c
A() { /run/netns-exec zrsA "$@"; }
B() { /run/netns-exec zrsB "$@"; }
C() { /run/netns-exec zrsC "$@"; }

# Batches: a process costs some 50 ms in an emulated guest.
hosts_up() {
	ip -batch - <<-'BATCH' || return 1
		netns add zrsA
		netns add zrsB
		link add va netns zrsA mtu 9000 type veth peer name vb netns zrsB mtu 9000
	BATCH
	host_up zrsA va "$ADDR_A" "$DEV_A" "$ADDR6_A" && host_up zrsB vb "$ADDR_B" "$DEV_B" "$ADDR6_B"
}

# host_up NAMESPACE NETDEV ADDRESS RDMA-DEVICE [IPV6-ADDRESS]
host_up() {
	ip -n "$1" -batch - <<-BATCH || return 1
		link set lo up
		addr add $3/24 dev $2
		${5:+addr add $5/64 dev $2 nodad}
		link set $2 up
	BATCH
	ip netns exec "$1" rdma link add "$4" type rxe netdev "$2"
}

# port a|b|c up|down: the interface keeps its carrier. Without one, Soft-RoCE's queue pair 1 may go to the error
# state for good (tests/findings/qp1), and the host makes no connection any more.
port() {
	local state=0
	[ "$2" = down ] || state=3
	bridge -n zrsL link set dev "l$1" state $state
}

# hosts_bridged: a fourth namespace has the bridge.
hosts_bridged() {
	ip -batch - <<-'BATCH' || return 1
		netns add zrsA
		netns add zrsB
		netns add zrsC
		netns add zrsL
		link add br0 netns zrsL mtu 9000 type bridge
		link add va netns zrsA mtu 9000 type veth peer name la netns zrsL mtu 9000
		link add vb netns zrsB mtu 9000 type veth peer name lb netns zrsL mtu 9000
		link add vc netns zrsC mtu 9000 type veth peer name lc netns zrsL mtu 9000
	BATCH
	ip -n zrsL -batch - <<-'BATCH' || return 1
		link set br0 up
		link set la master br0 up
		link set lb master br0 up
		link set lc master br0 up
	BATCH
	host_up zrsA va "$ADDR_A" "$DEV_A" && host_up zrsB vb "$ADDR_B" "$DEV_B" &&
		host_up zrsC vc "$ADDR_C" "$DEV_C"
}

# hosts_plain: a second veth pair (pa, pb; PLAIN_A, PLAIN_B) without offloads, with the MTU of
# Soft-RoCE's path. TCP pays for each packet of 4 KiB there, and for its checksum in software, as
# Soft-RoCE does.
hosts_plain() {
	ip link add pa netns zrsA mtu 4096 type veth peer name pb netns zrsB mtu 4096 &&
		plain_up zrsA pa "$PLAIN_A" && plain_up zrsB pb "$PLAIN_B"
}

plain_up() { # plain_up NAMESPACE NETDEV ADDRESS
	ip -n "$1" addr add "$3/24" dev "$2" && ip -n "$1" link set "$2" up &&
		ip netns exec "$1" ethtool -K "$2" tso off gso off gro off tx off rx off >/dev/null
}

# hosts_down: all hosts that are up, also those of a test that was ended.
hosts_down() {
	local d n
	for d in "$DEV_A" "$DEV_B" "$DEV_C"; do rdma link delete "$d" 2>/dev/null; done
	for n in zrsA zrsB zrsC zrsL; do
		[ ! -e "/run/netns/$n" ] || ip netns del "$n"
	done
	return 0
}
