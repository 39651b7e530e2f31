#!/bin/bash
# The directory of memory nodes follows a command's output; zrs mem ls --watch and zrs mem bench.
# rows: M1
# hosts: none
# debug: full
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/memnode.sh"

ktap_start
nodes_up || ktap_bail "three hosts and two nodes"
table=$TMP/table
printf '1:1 %s\n1:3 10.77.0.9\n' "$ADDR_B" >"$table"
check "the directory is what a command says" A zrs mem nodes watch --once -- cat "$table"
check_eq "and no more" "1:1 $ADDR_B 1:3 10.77.0.9" "$(A zrs mem nodes | xargs)"
start follower A "" zrs mem nodes watch --interval 0.2 -- cat "$table"
printf '1:1 %s\n1:2 %s\n1:4 10.77.0.9\n' "$ADDR_B" "$ADDR_C" >"$table.new"
mv "$table.new" "$table"
check "and follows it" says follower "3 nodes"
check_eq "to the end" "1:1 $ADDR_B 1:2 $ADDR_C 1:4 10.77.0.9" "$(A zrs mem nodes | xargs)"
echo "1:x nonsense" >"$table.new"
mv "$table.new" "$table"
check "a bad line is told" says follower "stays as it is"
check_eq "and changes nothing" "3" "$(A zrs mem nodes | wc -l)"
stop follower
check_fails "a command that fails" "failed" A zrs mem nodes watch --once -- false
check_fails "one that is not there" "cannot run" A zrs mem nodes watch --once -- "$TMP/no-command"

# The known state of nodes: of local nodes the current one, of others the one in the hello of the current link.
known() { "$1" zrs mem nodes --json | jq -r "select(.node == \"$2\") | $3"; }
check_eq "without a link nothing is known of a node" null "$(known A 1:1 .state)"
keep=$(A zrs mem alloc 1:1 1M)
check_eq "its own host knows its free bytes" "served $((31 << 20))" "$(known B 1:1 '"\(.state) \(.free)"')"
incarnation=$(known B 1:1 .incarnation)
A zrs mem nodes add 1:8 "$ADDR_B"
start holder A writing python3 "$(dirname "$0")/hammer.py" "$keep" || ktap_bail "a program that keeps the link up"
check_eq "with a link its incarnation is known" "served $incarnation" "$(known A 1:1 '"\(.state) \(.incarnation)"')"
check "and its free bytes when that was made" [ "$(known A 1:1 .free)" -ge $((31 << 20)) ]
check_eq "a node that its host does not serve" "not served" "$(known A 1:8 .state)"
check_eq "a host without a link" null "$(known A 1:4 .state)"
B zrs mem drain 1:1
check_eq "a node that is drained" draining "$(known B 1:1 .state)"
B zrs mem drain 1:1 --undo
A zrs mem nodes >"$table"
check "the list is commented, and can be loaded" has "$table" "# served, "
check "it is loaded" A zrs mem nodes load "$table"
check_eq "and says the same" "1:1 1:2 1:4 1:8" "$(A zrs mem nodes | cut -d' ' -f1 | xargs)"
stop holder

start lister B "1 regions" zrs mem ls --watch 0.2 || true
check "ls --watch lists them" says lister "1 regions, "
A zrs mem alloc 1:1 1M >"$TMP/second"
check "again and again" says lister "2 regions, "
stop lister
A zrs mem free "$keep"
# bench: writes the figures of `zrs mem bench` to $TMP/figures. That program ends with a free under load: a node waits
# 2 s for the copies under way, then the node ends the link, and the program fails. It runs a second time then.
bench() {
	local _
	for _ in 1 2; do
		A zrs mem bench 1:1 --size 4M --seconds 0.2 --json >"$TMP/figures" && return 0
	done
	return 1
}
check "bench" bench
check_eq "has a figure of each kind" "put get get 4 KiB free under load" "$(jq -r .what "$TMP/figures" | xargs)"
check "above nothing" jq -se 'all(.value > 0)' "$TMP/figures"
ktap_done
