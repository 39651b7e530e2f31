#!/bin/bash
# Each call of memory nodes with its Nth allocation, copy or verb failing: a documented errno, and no byte of a region
# changes by a call that fails. With TIER=full, the module's points and its work items fail in the life of regions:
# each call succeeds when it is repeated.
# rows: M4 M5 B9 B11
# debug: only
# hosts: none
# timeout: 240
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/memnode.sh"

ktap_start
nodes_up 64M || ktap_bail "three hosts and two nodes"
full=() what=(memory)
[ "${TIER:-ci}" != full ] || full=(--full) what+=(memory-points memory-async)
for w in "${what[@]}"; do
	check_lines zrs-selftest faults --what "$w" --addr "$ADDR_B" --scale "$SCALE" "${full[@]}"
done
check "no page stays pinned" unpinned_here
for h in B C; do stop "node$h" TERM; done
check "rmmod" zrs_unload
ktap_done
