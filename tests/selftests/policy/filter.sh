#!/bin/bash
# Filters of datagram sockets, in classic BPF and eBPF: what they see of headers and bytes, what they drop and cut,
# and the options about them. Compared with UDP, for sockets of ZRS alone and for those with a UDP socket inside,
# by RDMA and by UDP.
# rows: B16 Z7
# params: dgram_stall_ms=5000
# debug: full
# timeout: 240
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
check_lines /run/netns-exec zrsB python3 "$(dirname "$0")/filter.py"
ktap_done
