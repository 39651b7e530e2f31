#!/bin/bash
# Copies that fail or are canceled leave no key of their target behind. More copies at a time than a region has keys for, or
# the source's host places, wait for each other. A copy, and a queued write, whose target is sealed ends with EROFS, and says
# how much has landed. A signal that does not kill ends no call. A copy to a node that its source's host should serve, and
# does not, makes no link from that host to itself.
# rows: M2 M4 M5
# dma: coherent
# hosts: none
# timeout: 300
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/memnode.sh"

links() { "$1" zrs stats --json | sed 's/,/\n/g' | sed -n 's/^"mem_links":\([0-9]*\).*/\1/p'; }

ktap_start
nodes_up 64M || ktap_bail "three hosts and two nodes"
here=$(dirname "$0")
r=$(C zrs mem alloc 1:2 4M) && w=$(C zrs mem key "$r" --rights rw) || ktap_bail "a region"
check_lines A python3 "$here/copies.py" keys
check_lines B python3 "$here/copies.py" places "$w"
check_lines A python3 "$here/copies.py" sealed
check_lines A python3 "$here/copies.py" signaled

start node9 C "serving node 1:9" zrs mem serve --node 1:9 --size 1M --open || ktap_bail "a further node"
A zrs mem nodes add 1:9 "$ADDR_C"
B zrs mem nodes add 1:9 "$ADDR_B"
from=$(A zrs mem alloc 1:1 4096) && to=$(A zrs mem alloc 1:9 4096) || ktap_bail "regions"
before=$(links B)
check_fails "a copy to a node whose source would have to serve it: ENXIO" "no host serves this node" A zrs mem cp "$from" "$to"
# An unused memory link may end meanwhile.
check "makes no link" [ "$(links B)" -le "$before" ]
ktap_done
