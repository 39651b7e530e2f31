#!/bin/bash
# Posting, registering, completions and the connection manager fail in a connection's life.
# rows: B9 B11 E2 E5
# debug: only
# params: pool_mib=4 window_kib=256 blocks=128 link_credit=32 copy_tail_kib=0
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
full=()
[ "${TIER:-ci}" != full ] || full=(--full)
check_lines zrs-selftest faults --what points --addr "$ADDR_B" --scale "$SCALE" "${full[@]}"
ktap_done
