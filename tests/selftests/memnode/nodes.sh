#!/bin/bash
# Several nodes of one host: copies between them and to others, drain, the end of one of them, 16 at most.
# Directories of network namespaces, a node by its IPv6 address, one with huge pages, a time to live, and the
# shares of users. Nodes that are served at once.
# rows: M1 M2 M4 M5
# hosts: none
# debug: full
# timeout: 240
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/memnode.sh"

here=$(dirname "$0")
# fewer HOST COUNT: its nodes have that many regions soon.
fewer() {
	local _
	for _ in $(seq 1 $((50 * PATIENCE))); do
		[ "$("$1" zrs mem ls | wc -l)" != "$2" ] || return 0
		nap 0.1
	done
	return 1
}

ktap_start
nodes_up || ktap_bail "three hosts and two nodes"
head -c 1500077 /dev/urandom >"$TMP/file"
want=$(sum "$TMP/file")
ip -n zrsB addr add "$ADDR6_B/64" dev vb nodad && ip -n zrsA addr add "$ADDR6_A/64" dev va nodad ||
	ktap_bail "IPv6 addresses"
for h in A C; do $h zrs mem nodes add 1:4 "$ADDR_B"; done
start node4 B "serving node 1:4" zrs mem serve --node 1:4 --size 16M --open || ktap_bail "a second node"
check_fails "a node that is served already" "serves that node already" \
	timeout $((20 * PATIENCE)) /run/netns-exec zrsB zrs mem serve --node 1:4 --size 1M --open

r=$(A zrs mem put "$TMP/file" 1:1) || ktap_bail "put"
before=$(passed)
s=$(A zrs mem cp "$r" 1:4) || ktap_bail "a copy between nodes of one host"
through=$(($(passed) - before))
check "a copy between two nodes of a host passes nobody else" [ "$through" -lt 65536 ]
check_eq "and is right" "$want" "$(A zrs mem get "$s" "$TMP/back" && sum "$TMP/back")"
t=$(A zrs mem cp "$s" 1:2) || ktap_bail "a copy from the second node"
check_eq "from there to another host" "$want" "$(A zrs mem get "$t" "$TMP/back" && sum "$TMP/back")"
check_fails "the key of a region at one node is none at the other" "freed|does not allow" \
	A zrs mem get "zrs:1:1/${s#*/}" "$TMP/none"
check_eq "both are listed" "1:1 1:4" "$(B zrs mem ls --json | jq -r .node | sort | xargs)"
check_eq "or one of them" "1:4" "$(B zrs mem ls --json 1:4 | jq -r .node | sort -u | xargs)"
check_eq "by its number alone" "1:4" "$(B zrs mem ls --json 4 | jq -r .node | sort -u | xargs)"

check "drain" B zrs mem drain 1:4
check_fails "a drained node takes no regions" "takes no new regions" A zrs mem alloc 1:4 1M
check "the other one does" A zrs mem alloc 1:1 64K --ttl 600000
check "copies out of it work" A zrs mem cp "$s" "$t"
start waiter B "" zrs mem drain 1:4 --wait
A zrs mem free "$s"
check_ended "drain --wait ends with its last region" waiter
check "undo" B zrs mem drain 1:4 --undo
check_lines B python3 "$(dirname "$0")/serve.py" drained 9
s=$(A zrs mem alloc 1:4 1M) || ktap_bail "alloc"
check_fails "drain, of another host's node" "no host serves this node" B zrs mem drain 1:2
stop node4 TERM
check_fails "its regions end with it" "no host serves this node|freed" A zrs mem get "$s" "$TMP/none"
check_eq "those of the other one do not" "$want" "$(A zrs mem get "$r" "$TMP/back" && sum "$TMP/back")"

count=$(B zrs mem ls | wc -l)
check "a region with a time to live" A zrs mem alloc 1:1 1M --ttl 500
check "ends" fewer B "$count"

# By IPv6.
A zrs mem nodes add 1:1 "$ADDR6_B"
check_eq "a node by its IPv6 address" "$want" "$(A zrs mem get "$r" "$TMP/back" && sum "$TMP/back")"
check "and a copy from there" A zrs mem cp "$r" "$t"
A zrs mem nodes add 1:1 "$ADDR_B"

# Each namespace has its own directory and nodes.
check_fails "a namespace without a directory" "no host serves this node" zrs mem alloc 1:1 1M
start own C "serving node 1:1" zrs mem serve --node 1:1 --size 1M --open || ktap_bail "a node of that number"
check_eq "a node of the same number elsewhere is another one" "" "$(C zrs mem ls --json | jq -r 'select(.node == "1:1")')"
stop own TERM

# Huge pages: one extent for 2 MiB, so a region may be longer than 340 MiB.
if echo 8 >/proc/sys/vm/nr_hugepages && [ "$(cat /proc/sys/vm/nr_hugepages)" = 8 ]; then
	start huge B "serving node 1:4" zrs mem serve --node 1:4 --size 16M --huge --open || ktap_bail "huge pages"
	s=$(A zrs mem put "$TMP/file" 1:4) || ktap_bail "put to huge pages"
	check_eq "put and get with huge pages" "$want" "$(A zrs mem get "$s" "$TMP/back" && sum "$TMP/back")"
	check_eq "copies to and from them" "$want" \
		"$(A zrs mem cp "$s" "$t" >/dev/null && A zrs mem cp "$t" "$s" >/dev/null && A zrs mem get "$s" "$TMP/back" && sum "$TMP/back")"
	stop huge TERM
	start part B serving python3 "$here/serve.py" huge 4 || ktap_bail "a part of huge pages"
	# Nearly all of the node: as many bytes as three huge pages have, in four of the memfd.
	head -c $(((6 << 20) - 456)) /dev/urandom >"$TMP/long"
	long=$(sum "$TMP/long")
	s=$(A zrs mem put "$TMP/long" 1:4) || ktap_fail "put to a part of huge pages"
	check_eq "put and get from the middle of a huge page on" "$long" "$(A zrs mem get "$s" "$TMP/back" && sum "$TMP/back")"
	check_eq "as its own host reads it" "$long" "$(B zrs mem get "$s" "$TMP/back" && sum "$TMP/back")"
	check_eq "copies to and from there" "$long" \
		"$(t=$(A zrs mem cp "$s" 1:1) && A zrs mem cp "$t" "$s" >/dev/null && A zrs mem get "$s" "$TMP/back" && sum "$TMP/back")"
	stop part TERM
	echo 0 >/proc/sys/vm/nr_hugepages
else
	ktap_skip "huge pages" "the guest has no 16 MiB in a piece"
fi

# A user's share of the regions of this host's nodes: 1 % of 4096.
zrs set mem_user_percent=1
start node5 B "serving node 1:5" zrs mem serve --node 1:5 --size 16M --open || ktap_bail "a third node"
check_lines B python3 "$here/share.py" 5 40
zrs set mem_user_percent=25
stop node5 TERM
check_lines B python3 "$here/nodes.py" 1
check_lines A python3 "$here/serve.py" together 8
ktap_done
