# shellcheck shell=bash
# For the selftests with a hostile peer: the usual hosts A and B, and C, the peer's host, on one
# bridge; C has a second address. The module does not listen in C, as no ZRS socket does. Sourced
# after ktap.sh.

hostile_up() {
	modprobe ib_umad || return 1
	at_end "rdma link delete rxeC; ip netns del zrsC; ip netns del zrsL"
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
		host_up zrsC vc 10.77.0.3 rxeC && ip -n zrsC addr add 10.77.0.4/24 dev vc
}

# hostile CASE...: runs the cases with one of these in their names; each line is a result.
hostile() {
	local line rc=0 scale=${TIME_SCALE:-1}
	while IFS= read -r line; do
		case $line in
		"ok - "*) ktap_pass "${line#ok - }" ;;
		"not ok - "*) ktap_fail "${line#not ok - }" ;;
		*) ktap_say "${line#\# }" ;;
		esac
	done < <(ip netns exec zrsC zrs-hostile --scale "$scale" --limit "$((280 * scale))" "$@" 2>&1)
	wait "$!" || rc=$?
	[ "$rc" = 0 ] || [ "$KTAP_FAILED" != 0 ] || ktap_fail "zrs-hostile ended with exit status $rc"
}
