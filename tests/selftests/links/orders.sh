#!/bin/bash
# A link is made of small allocations, none of more than eight pages in a row: the connection manager's threads,
# which make it, search for no contiguous memory, and other users of RDMA do not wait for that.
# rows: B17 E5
# hosts: own
# timeout: 60
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
watch_large
before=$(counter resources_made)
check_pair "data by a new link" xfer --sizes 1,5000 --both
end_large
made=$(($(counter resources_made) - before))
check "a link was made ($made queues)" [ "$made" -ge 4 ]
check_eq "no large allocation" 0 "$(wc -l <"$TMP/large")"
ktap_done
