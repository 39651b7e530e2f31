#!/bin/bash
# The target of copies and writes is cut off in their middle: its own host still has its memory, and in it are at least the
# bytes of which the completion, or the call, says that they have landed.
# rows: M4 M5
# hosts: none
# debug: full
# params: connect_timeout_ms=5000
# timeout: 180
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/memnode.sh"

ktap_start
nodes_up 84M || ktap_bail "three hosts and two nodes"
check_lines A python3 "$(dirname "$0")/landed.py" lc
port c up
check "nothing stays pinned" unpinned_here
ktap_done
