#!/bin/bash
# Writes of the same bytes that are under way at the same time, by two hosts, two threads, the node's own host, and by a copy and
# a write of a queue: each byte is the one's or the other's, and nothing else changes.
# rows: M3 M5
# hosts: none
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/memnode.sh"

ktap_start
nodes_up || ktap_bail "three hosts and two nodes"
r=$(B zrs mem alloc 1:1 1M) || ktap_bail "a region"
check_lines B python3 "$(dirname "$0")/overlap.py" "$r"
check "nothing stays pinned" unpinned_here
ktap_done
