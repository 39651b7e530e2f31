#!/bin/bash
# A page of a node that the kernel knows as defective, as after a memory error: reads, writes and copies that reach it get EIO,
# its region ends, other regions go on, and the page is given to no other region.
# rows: M4 M5
# hosts: none
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/memnode.sh"

ktap_start
nodes_up || ktap_bail "three hosts and two nodes"
for h in A B C; do $h zrs mem nodes add 1:3 "$ADDR_B" || ktap_bail "the directory"; done
check_lines B python3 "$(dirname "$0")/poisoned.py" 3
check "nothing stays pinned" unpinned_here
for h in B C; do stop "node$h" TERM; done
check "rmmod" zrs_unload
ktap_done
