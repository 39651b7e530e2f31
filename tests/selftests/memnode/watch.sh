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
echo "1:x nonsense" >"$table"
check "a bad line is told" says follower "stays as it is"
check_eq "and changes nothing" "3" "$(A zrs mem nodes | wc -l)"
stop follower
check_fails "a command that fails" "failed" A zrs mem nodes watch --once -- false
check_fails "one that is not there" "cannot run" A zrs mem nodes watch --once -- "$TMP/no-command"

keep=$(A zrs mem alloc 1:1 1M)
start lister B "1 regions" zrs mem ls --watch 0.2 || true
check "ls --watch lists them" says lister "1 regions, "
A zrs mem alloc 1:1 1M >"$TMP/second"
check "again and again" says lister "2 regions, "
stop lister
A zrs mem free "$keep"
check "bench" A zrs mem bench 1:1 --size 4M --seconds 0.2 --json
check_eq "has a figure of each kind" "put get get 4 KiB free under load" "$(jq -r .what "$TMP/out" | xargs)"
check "above nothing" jq -se 'all(.value > 0)' "$TMP/out"
ktap_done
