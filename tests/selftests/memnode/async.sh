#!/bin/bash
# io_uring and libaio on regions: reads and writes of another host's node and of this host's own go on at the same
# time; a submission does not wait; errors, limits, and the end of region and process with work under way.
# rows: M3 M5
# hosts: none
# params: ack_timeout_ms=2000
# timeout: 180
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/memnode.sh"

ktap_start
here=$(dirname "$0")
nodes_up || ktap_bail "three hosts and two nodes"
[ "$(cat /proc/sys/kernel/io_uring_disabled)" = 0 ] || ktap_bail "io_uring"
check_lines A python3 "$here/async.py" 1 lb
check_lines B python3 "$here/async.py" 1
check "nothing stays pinned" unpinned_here
ktap_done
