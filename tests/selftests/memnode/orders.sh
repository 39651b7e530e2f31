#!/bin/bash
# A memory link is made of small allocations, none of more than eight pages in a row, as links/orders shows of those of
# sockets.
# rows: M2 B17
# hosts: none
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/memnode.sh"

ktap_start
nodes_up || ktap_bail "three hosts and two nodes"
watch_large
before=$(counter resources_made)
head -c 100000 /dev/urandom >"$TMP/file"
region=$(A zrs mem put "$TMP/file" 1:1) || ktap_bail "bytes by a new link"
check "read back" A zrs mem get "$region" "$TMP/back"
check "are the same" cmp "$TMP/file" "$TMP/back"
end_large
made=$(($(counter resources_made) - before))
check "a link was made ($made objects)" [ "$made" -ge 6 ]
check_eq "no large allocation" 0 "$(wc -l <"$TMP/large")"
check "the region is freed" A zrs mem free "$region"
ktap_done
