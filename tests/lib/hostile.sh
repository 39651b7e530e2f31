# shellcheck shell=bash
# For the selftests with a hostile peer: the usual hosts A and B, and C, the peer's host, on one
# bridge (hosts_bridged); C has a second address. The module does not listen in C, as no ZRS socket does. Sourced
# after ktap.sh.

hostile_up() {
	modprobe ib_umad || return 1
	hosts_bridged && ip -n zrsC addr add 10.77.0.4/24 dev vc
}

# hostile CASE...: runs the cases with one of these in their names; each line is a result.
hostile() {
	local line rc=0 scale=${TIME_SCALE:-1} patience=${LIMIT_SCALE:-1}
	while IFS= read -r line; do
		case $line in
		"ok - "*) ktap_pass "${line#ok - }" ;;
		"not ok - "*) ktap_fail "${line#not ok - }" ;;
		*) ktap_say "${line#\# }" ;;
		esac
	done < <(ip netns exec zrsC zrs-hostile --scale "$scale" --limit "$((280 * scale * patience))" "$@" 2>&1)
	wait "$!" || rc=$?
	[ "$rc" = 0 ] || [ "$KTAP_FAILED" != 0 ] || ktap_fail "zrs-hostile ended with exit status $rc"
}
