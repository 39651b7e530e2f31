#!/bin/bash
# Node and storage ids that do not exist, and positions that no region has, given to the module by its calls themselves: each
# has its errno, and no descriptor, region, key, page or use of the module is left behind.
# rows: M1 M4
# hosts: none
# timeout: 90
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/memnode.sh"

ktap_start
here=$(dirname "$0")
nodes_up || ktap_bail "three hosts and two nodes"
check_lines A python3 "$here/numbers.py" user
check_lines B python3 "$here/numbers.py" administrator
check "nothing stays pinned" unpinned_here
for h in B C; do stop "node$h" TERM; done
check "rmmod" zrs_unload
ktap_done
