#!/bin/bash
# Each call with its Nth allocation, copy or verb failing: a documented errno, and it works after.
# rows: Z4 B9 B11
# debug: only
# params: pool_mib=4 window_kib=256 blocks=128 link_credit=32 copy_tail_kib=0
# timeout: 90
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
full=()
[ "${TIER:-ci}" != full ] || full=(--full)
check_lines zrs-selftest faults --what calls --addr "$ADDR_B" --scale "$SCALE" "${full[@]}"
check "no page stays pinned" unpinned
ktap_done
