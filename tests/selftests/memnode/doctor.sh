#!/bin/bash
# `zrs doctor` on memory nodes: hosts that serve what the directory says; a node that its host does not serve, a host that is not
# reached, a file that is refused, and one that is not loaded.
# rows: B8 M5
# hosts: none
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/memnode.sh"

# finds TEXT NAME STATUS PATTERN: the report has such a line, with a remedy if it is not ok.
finds() {
	A zrs doctor --json >"$TMP/report" 2>&1
	if jq -e --arg n "$2" --arg s "$3" --arg p "$4" \
		'.checks | any(.name == $n and .status == $s and (.text | test($p)) and (.remedy != "" or $s == "ok"))' \
		"$TMP/report" >"$TMP/found"; then
		ktap_pass "$1"
	else
		jq -r '.checks[] | "#   \(.status) \(.name): \(.text)"' "$TMP/report" || sed 's/^/#   /' "$TMP/report"
		ktap_fail "$1"
	fi
}

ktap_start
nodes_up || ktap_bail "three hosts and two nodes"
nodes=/etc/zrs/nodes
mkdir -p /etc/zrs && [ ! -e "$nodes" ] || ktap_bail "/etc/zrs without nodes"
at_end "rm -f $nodes"
finds "all nodes are served" "memory nodes" ok "^2 nodes, all served"
A zrs mem nodes add 1:3 "$ADDR_B"
finds "one that its host does not serve" "memory nodes" warning "do not serve them: 1:3 at $ADDR_B$"
A zrs mem nodes del 1:3
A zrs mem nodes add 1:4 10.77.0.9
finds "a host that is not reached" "memory hosts" warning "1:4 at 10.77.0.9: "
A zrs mem nodes del 1:4
printf '1:1 %s\n1:2 %s\n' "$ADDR_B" "$ADDR_C" >"$nodes"
finds "the file is in effect" "nodes file" ok "^2 nodes, as the directory"
printf '1:1 %s\n1:2 %s\n' "$ADDR_B" "$ADDR_B" >"$nodes"
finds "it is not" "nodes file" warning "1:2 $ADDR_B$"
printf '1:1 %s\n1:2 there\n' "$ADDR_B" >"$nodes"
finds "it is refused" "nodes file" failure "line 2: 'there'"
ktap_done
