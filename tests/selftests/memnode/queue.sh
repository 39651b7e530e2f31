#!/bin/bash
# The queue descriptor: copies, writes and reads by submit and read, drain, cancel, poll, epoll, limits,
# and its close with work under way; the same by the C library.
# rows: M4 M5
# dma: coherent
# hosts: none
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/memnode.sh"

ktap_start
here=$(dirname "$0")
nodes_up || ktap_bail "three hosts and two nodes"
r=$(B zrs mem alloc 1:1 1M) && w=$(B zrs mem key "$r" --rights rw) || ktap_bail "a region"
check_lines A python3 "$here/queue.py" "$w"
check_lines B python3 "$here/queue.py" "$w"
check_lines A python3 "$here/queue_c.py" /zrs/build/userspace/release/libzrs.so.0
check "nothing stays pinned" unpinned_here
ktap_done
