#!/bin/bash
# A link is made of small allocations, none of more than eight pages in a row: the connection manager's threads,
# which make it, search for no contiguous memory, and other users of RDMA do not wait for that.
# rows: B17 E5
# hosts: own
# timeout: 60
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
mount -t tracefs tracefs $TRACING 2>/dev/null
EVENT=$TRACING/events/kmem/mm_page_alloc
[ -e $EVENT ] || { ktap_skip "allocations" "this kernel has no event of the page allocator"; ktap_done; }
at_end "echo 0 >$EVENT/enable; echo 0 >$EVENT/filter; echo >$TRACING/trace"
echo 'order > 3' >$EVENT/filter
echo >$TRACING/trace
echo 1 >$EVENT/enable
before=$(counter resources_made)
check_pair "data by a new link" xfer --sizes 1,5000 --both
echo 0 >$EVENT/enable
made=$(($(counter resources_made) - before))
check "a link was made ($made queues)" [ "$made" -ge 4 ]
# Soft-RoCE's queues are vmalloc()'s, which tries large ones without a wait.
# The threads that make links are the kernel's.
grep 'mm_page_alloc:' $TRACING/trace | grep -v 'gfp_flags=GFP_NOWAIT' | grep -E '^ *k(worker|rdma)' >"$TMP/large"
cat "$TMP/large"
check_eq "no large allocation" 0 "$(wc -l <"$TMP/large")"
ktap_done
