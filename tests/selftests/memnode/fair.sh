#!/bin/bash
# A host that has a thousand copies queued at a node does not hold up another host's: it has its turn after a few of them.
# A long copy within a node does not hold up another host's reads.
# rows: M2 M5
# dma: coherent
# hosts: none
# timeout: 90
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/memnode.sh"

ktap_start
here=$(dirname "$0")
nodes_up || ktap_bail "three hosts and two nodes"
head -c 8 /dev/zero >"$TMP/count"
s=$(C zrs mem alloc 1:1 64K) && t=$(C zrs mem alloc 1:2 64K) && start hog C copying python3 "$here/fair.py" hog "$TMP/count" "$s" "$t" ||
	ktap_bail "a host with many copies"
s=$(A zrs mem alloc 1:1 64K) && t=$(A zrs mem alloc 1:2 64K) || ktap_bail "regions"
check_lines A python3 "$here/fair.py" ask "$TMP/count" "$s" "$t"
check "the other host's copies succeed" runs "${PID[hog]}"
stop hog

start big B "serving node 1:4" zrs mem serve --node 1:4 --size 96M --host-percent 100 --open || ktap_bail "a large node"
for h in A B; do $h zrs mem nodes add 1:4 "$ADDR_B"; done
s=$(B zrs mem alloc 1:4 40M) && t=$(B zrs mem alloc 1:4 40M) && start long B copying python3 "$here/fair.py" long "$TMP/count" "$s" "$t" ||
	ktap_bail "a long copy"
check_lines A python3 "$here/fair.py" look "$TMP/count" "$s" "$t"
ktap_done
