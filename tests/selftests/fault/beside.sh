#!/bin/bash
# Sockets with TCP beside ZRS: each call with its Nth allocation, copy or verb failing, and verbs that fail
# in a connection's life. The connection is carried by ZRS or by TCP, or the call fails with a documented
# errno; no listener is lost, and no memory leaks.
# rows: B9 B14 E5
# debug: only
# params: pool_mib=4 window_kib=256 blocks=128 link_credit=32 fallback_ms=3000 connect_timeout_ms=5000
# timeout: 180
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
full=()
[ "${TIER:-ci}" != full ] || full=(--full)
check_lines zrs-selftest faults --what beside --addr "$ADDR_B" --scale "$SCALE" "${full[@]}"
check_lines zrs-selftest faults --what points --beside --addr "$ADDR_B" --scale "$SCALE" "${full[@]}"
check "no page stays pinned" unpinned
ktap_done
