#!/bin/bash
# Each call of a datagram socket with UDP inside (ZRS_DGRAM_UDP) with its Nth allocation, copy or verb failing: a
# documented errno; both sockets have the same port, peer and options after it, and datagrams arrive by UDP and by RDMA.
# rows: Z7 B9 B11
# debug: only
# params: pool_mib=4 window_kib=256 blocks=128 link_credit=64 dgram_stall_ms=5000
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
full=()
[ "${TIER:-ci}" != full ] || full=(--full)
check_lines zrs-selftest faults --what companion --addr "$ADDR_B" --scale "$SCALE" "${full[@]}"
check "no page stays pinned" unpinned
ktap_done
