#!/bin/bash
# Errors of memory nodes that are about hosts: one that serves nothing, one that serves another node, a copy whose target
# the source does not know, no device; and the calls that need CAP_NET_ADMIN.
# rows: M1 M2 M5
# hosts: none
# timeout: 90
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/memnode.sh"

nobody() { /run/netns-exec zrsB setpriv --reuid 65534 --regid 65534 --clear-groups timeout $((20 * PATIENCE)) "$@"; }
# no_device: A asks B, which fails; its last link may be going down still.
no_device() {
	local _
	for _ in $(seq 1 $((20 * PATIENCE))); do
		A zrs mem alloc 1:1 1M >"$TMP/none" 2>"$TMP/why" || grep -q "lost" "$TMP/why" || break
		nap 0.5
	done
	cat "$TMP/why"
	return 1
}
again() {
	local _
	for _ in $(seq 1 $((20 * PATIENCE))); do
		! A zrs mem get "$from" /dev/null 2>"$TMP/err" || return 0
		nap 0.5
	done
	return 1
}

# apart on|off: whether B and C do not reach each other; A reaches both.
apart() { bridge -n zrsL link set dev lb isolated "$1" && bridge -n zrsL link set dev lc isolated "$1"; }

ktap_start
nodes_up || ktap_bail "three hosts and two nodes"
B zrs mem nodes add 1:7 "$ADDR_A"
check_fails "a host that serves nothing: ECONNREFUSED" "serves no memory" B zrs mem alloc 1:7 1M
A zrs mem nodes add 1:8 "$ADDR_C"
check_fails "a host that does not serve this node: ENXIO" "no host serves this node" A zrs mem alloc 1:8 1M

# A peer cannot make a host connect to a node that is not in the host's directory.
from=$(A zrs mem alloc 1:1 1M) && to=$(A zrs mem alloc 1:2 1M) || ktap_bail "regions"
B zrs mem nodes del 1:2
check_fails "a copy to a node that its source does not know: ENXIO" "no host serves this node" A zrs mem cp "$from" "$to"
B zrs mem nodes add 1:2 "$ADDR_C"
apart on || ktap_bail "two hosts apart"
before=$(passed)
check_fails "a copy between hosts that do not reach each other: EHOSTUNREACH" "cannot be reached" A zrs mem cp "$from" "$to"
check "and its bytes do not pass the requester instead" [ $(($(passed) - before)) -lt 200000 ]
apart off
check "and to one that it knows" A zrs mem cp "$from" "$to"

for call in "serve --node 1:9 --size 1M --open" "broker --for 1:1 --quota 1M --open" "nodes add 1:9 $ADDR_C" \
	"nodes del 1:2" "nodes self 2" "drain 1:1" "ls"; do
	read -ra words <<<"$call"
	check_fails "an ordinary user: ${words[0]} ${words[1]:-}: EPERM" "CAP_NET_ADMIN" nobody zrs mem "${words[@]}"
done
check_eq "who may read the directory" "1:1 1:2 1:7" "$(nobody zrs mem nodes | cut -d' ' -f1 | xargs)"
check "and use what it is given" nobody zrs mem get "$from" /dev/null

check "the device of the requester is removed" timeout 60 rdma link delete rxeA
# Asks that wait for the lost link fail first, with another error.
check_fails "no device: ENODEV" "no RDMA device" no_device
check "a new one" ip netns exec zrsA rdma link add rxeA type rxe netdev va
check "and all is well" again
ktap_done
