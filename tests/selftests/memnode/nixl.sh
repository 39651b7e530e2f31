#!/bin/bash
# NIXL's POSIX backend, as it comes from the Python registry, on region descriptors. Without build/nixl, which
# make test-nixl has made, it is skipped.
# rows: M5 B13
# hosts: none
# timeout: 120
# tier: full
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/memnode.sh"

ktap_start
packages=/zrs/build/nixl
if [ ! -e "$packages/.whole" ]; then
	ktap_skip "NIXL on regions" "no build/nixl: run make test-nixl"
	ktap_done
	exit
fi
nodes_up || ktap_bail "three hosts and two nodes"
check_lines A python3 "$(dirname "$0")/nixl.py" "$packages"
check "nothing stays pinned" unpinned_here
ktap_done
