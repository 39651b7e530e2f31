#!/bin/bash
# Brokers: a host asks the owning processing node for memory, which allocates at its memory node and
# answers with node and storage id; then it copies and writes there. The rule's quota and admission key,
# giving back, the end of the rule, and a copy into memory that a plain host serves.
# rows: M1 M2 M3 M5
# hosts: none
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/memnode.sh"

# regions_of HOST: how many regions there are at its node.
regions_of() { "$1" zrs mem ls --json | grep -c '"region"'; }

# empty HOST: the node has none, soon.
empty() {
	local _
	for _ in $(seq 1 $((50 * PATIENCE))); do
		[ "$(regions_of "$1")" != 0 ] || return 0
		nap 0.1
	done
	return 1
}

ktap_start
nodes_up || ktap_bail "three hosts and two nodes"
head -c 300000 /dev/urandom >"$TMP/file"
want=$(sum "$TMP/file")
check_fails "a host that is no broker" "does not allow this" A zrs mem alloc 1:1 1M --via 1:2

# A broker that serves no node knows regions with KEEP when its daemon has gone.
for h in A C; do $h zrs mem nodes add 1:9 "$ADDR_A"; done
start keeper A "allocating" zrs mem broker --for 1:1 --quota 2M --open
k=$(C zrs mem alloc 1:1 1M --via 1:9) || ktap_bail "alloc by a broker without a node"
stop keeper TERM
# Longer than a host stays that nobody uses.
nap 4
start keeper A "allocating" zrs mem broker --for 1:1 --quota 2M --open
check_fails "a region of before counts against the quota" "its share" C zrs mem alloc 1:1 1500K --via 1:9
check "and is given back to the broker" C zrs mem free "$k" --via 1:9
check "which frees it" empty B
stop keeper TERM

# C, the host of 1:2, is the broker of 1:1, which B serves.
start broker C "allocating" zrs mem broker --for 1:1 --quota 2M --open
check_fails "a second rule of the same node" "broker of the node already" \
	timeout $((20 * PATIENCE)) /run/netns-exec zrsC zrs mem broker --for 1:1 --quota 1M --open
r=$(A zrs mem alloc 1:1 1M --via 1:2 2>"$TMP/err") || { cat "$TMP/err"; ktap_bail "alloc by the broker"; }
check_eq "the region is at the node" 1 "$(regions_of B)"
check "the requester writes there itself" A zrs mem put "$TMP/file" "$r"
check "and reads" A zrs mem get "$r" "$TMP/back"
check_eq "what it wrote" "$want" "$(head -c 300000 "$TMP/back" | sha256sum | cut -d' ' -f1)"
s=$(A zrs mem put "$TMP/file" 1:2) || ktap_bail "put"
check "a node copies into the region" A zrs mem cp "$s" "$r"
check_fails "beyond the quota" "its share" A zrs mem alloc 1:1 1500K --via 1:2
check_fails "its key derives no keys" "does not allow this" A zrs mem key "$r" --rights r
check_fails "and does not free at the node" "does not allow this" A zrs mem free "$r"
check_fails "another host does not give it back" "was freed" B zrs mem free "$r" --via 1:2
check "the requester gives it back" A zrs mem free "$r" --via 1:2
check_fails "then it is gone" "was freed" A zrs mem get "$r" "$TMP/none"
check "at the node, too" empty B
check "the quota is free again" A zrs mem alloc 1:1 2M --via 1:2 --ttl 500
check "a region with a time to live ends" empty B

# By a number alone, in the host's own domain.
r=
# The broker counts the region above until its own clock says that it has ended.
for _ in $(seq 1 $((50 * PATIENCE))); do
	r=$(A zrs mem alloc 1 1M --via 2 2>/dev/null) && break
	nap 0.1
done
[ -n "$r" ] || ktap_bail "alloc by numbers alone"
check "its region is written" A zrs mem put "$TMP/file" "$r"
stop broker TERM
check_fails "without a rule there are no more" "does not allow this" A zrs mem alloc 1:1 1M --via 1:2

# With admission keys, of the broker and of the node.
stop nodeB TERM
echo 00112233445566778899aabbccddeeff >"$TMP/node.key"
echo ffeeddccbbaa99887766554433221100 >"$TMP/broker.key"
start nodeB B "serving node 1:1" zrs mem serve --node 1:1 --size 16M --admission "$TMP/node.key"
start broker C "allocating" zrs mem broker --for 1:1 --quota 2M --admission "$TMP/broker.key" \
	--node-admission "$TMP/node.key"
check_fails "without the broker's admission key" "admission key" unless_lost A zrs mem alloc 1:1 1M --via 1:2
check_fails "with the node's" "admission key" unless_lost A zrs mem alloc 1:1 1M --via 1:2 --admission "$TMP/node.key"
check_fails "the broker's is not the node's" "admission key" unless_lost A zrs mem alloc 1:1 1M --admission "$TMP/broker.key"
check "with the broker's" unless_lost A zrs mem alloc 1:1 1M --via 1:2 --admission "$TMP/broker.key"

# A plain host: it has no node at first, and serves local memory for a while.
for h in B C; do $h zrs mem nodes add 1:3 "$ADDR_A"; done
A zrs mem nodes add 1:3 "$ADDR_A"
start plain A "serving node 1:3" zrs mem serve --node 1:3 --size 1M --open
d=$(A zrs mem alloc 1:3 400K) && s=$(A zrs mem put "$TMP/file" 1:2) || ktap_bail "regions"
check "a node copies into memory of a plain host" A zrs mem cp "$s" "$d"
A zrs mem get "$d" "$TMP/back"
check_eq "which has it" "$want" "$(head -c 300000 "$TMP/back" | sha256sum | cut -d' ' -f1)"
ktap_done
