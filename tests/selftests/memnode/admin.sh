#!/bin/bash
# The administrator of a node's host frees a region that was left behind, without its storage id; when that has
# returned nothing lands in it any more, though two hosts are writing to it.
# rows: M4 M5
# hosts: none
# timeout: 90
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/memnode.sh"

here=$(dirname "$0")
by_number() { "$1" zrs mem free --node 1:1 --region "$2"; }
nobody() { /run/netns-exec zrsB setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }

ktap_start
nodes_up || ktap_bail "three hosts and two nodes"
left=$(A zrs mem alloc 1:1 2M) && other=$(A zrs mem alloc 1:1 1M) || ktap_bail "regions"
numbers=$(B zrs mem ls --json | jq -r 'select(.bytes == 2097152) | "\(.region).\(.gen)"')
check_eq "ls says its number as free wants it" "1:1 $numbers" "$(B zrs mem ls | grep 2097152 | cut -d' ' -f1,2)"
start writer A writing python3 "$here/hammer.py" "$left" && start copier C writing python3 "$here/hammer.py" "$left" ||
	ktap_bail "programs that write"
check_fails "an ordinary user" "CAP_NET_ADMIN" nobody zrs mem free --node 1:1 --region "$numbers"
check_fails "another generation" "has no region" by_number B "${numbers%.*}.$((${numbers#*.} - 1))"
check_fails "another number" "has no region" by_number B "9.${numbers#*.}"
check_fails "no number" "zrs mem ls" by_number B 5
check_fails "on another host" "no host serves this node" by_number A "$numbers"
check "its programs have not noticed" runs "${PID[writer]}"
check "free by number, under load" by_number B "$numbers"
# All the rest of the node.
rest=$(B zrs mem alloc 1:1 31M) || ktap_bail "the rest of the node"
nap 0.5
B zrs mem get "$rest" "$TMP/later" 2>"$TMP/err"
check "what is allocated afterwards is zero, and stays so" cmp "$TMP/later" <(head -c 31M /dev/zero)
check_ended "the writer was refused" writer 20
check_ended "and the other one" copier 20
check_fails "its storage id is stale" "was freed" A zrs mem get "$left" "$TMP/none"
check_fails "it is freed once" "has no region" by_number B "$numbers"
check "the other region stays" A zrs mem get "$other" "$TMP/other"
ktap_done
