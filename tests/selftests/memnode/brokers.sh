#!/bin/bash
# The broker's daemon is killed in the middle of requests, again and again: the requesters are told that they may not, or that
# their region is gone, and nothing else; those of another rule and of the node itself go on; a daemon that is started again
# serves, and no region of the former one is left.
# rows: M1 M2 M5
# hosts: none
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/memnode.sh"

here=$(dirname "$0")
# broker NAME NODE: C allocates there for others.
broker() { start "$1" C "allocating" zrs mem broker --for "$2" --quota 8M --open; }
count() { grep -c "^$2" "$TMP/$1"; }
# more NAME TEXT COUNT: it has said that more often than COUNT times.
more() {
	local _
	for _ in $(seq 1 $((10 * 20 * PATIENCE))); do
		[ "$(count "$1" "$2")" -le "$3" ] || return 0
		nap 0.05
	done
	show "$1"
	return 1
}

ktap_start
nodes_up || ktap_bail "three hosts and two nodes"
broker broker 1:1 && broker other 1:2 || ktap_bail "brokers"
for who in "asks 2 1" "direct 0 1" "others 2 2"; do
	read -r name via node <<<"$who"
	start "$name" A served python3 "$here/brokers.py" "$via" "$node" || ktap_bail "requests"
done
for round in 1 2 3; do
	refusals=$(count asks "alloc: EACCES") gone=$(count asks "held: ESTALE")
	nap 0.5
	stop broker KILL
	check "round $round: the requester is refused" more asks "alloc: EACCES" "$refusals"
	check "the region that it has is gone" more asks "held: ESTALE" "$gone"
	before=$(count asks served)
	broker broker 1:1 || ktap_bail "a new daemon"
	check "and served by a new daemon" more asks served "$before"
done
for name in asks direct others; do
	signal "$name" TERM
	check_ended "the requests end ($name)" "$name"
	ktap_say "$name: $(tail -1 "$TMP/$name")"
done
# A region ends with its rule: its requester has it no more.
check_eq "errors of the requester" "" "$(grep -vE '^(served|ended:.*|alloc: EACCES|use: ESTALE|held: ESTALE)$' "$TMP/asks" | sort | uniq -c)"
for name in direct others; do
	check "$name: without an error" grep -q "^ended: [1-9][0-9]* times served, {}" "$TMP/$name"
	check_eq "$name: and nothing is gone" 0 "$(count "$name" held:)"
done
check "no region is left" no_regions
r=$(A zrs mem alloc 1:1 8M --via 1:2) || ktap_fail "all of the quota can be had"
check "a region of all of the quota is used" A zrs mem get "$r" /dev/null
ktap_done
