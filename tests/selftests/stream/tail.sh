#!/bin/bash
# The copied tail of blocking sends (copy_tail_kib): how many bytes are copied; the call does not wait for them, and the
# program may change them at once; the next call waits behind them; memory that ends in the middle, a closed socket, a peer
# that resets. A rule of the packet filter drops the packets of the tail, so that nothing depends on time.
# rows: Z4 Z5 B1
# params: ack_timeout_ms=2000 retry_count=6
# debug: full
# timeout: 240
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
if [ -n "${DEVICE:-}" ]; then
	ktap_skip "the tail of a call" "the packets are Soft-RoCE's, with chunks as it takes them"
	ktap_done
fi
at_end "echo 64 >/sys/module/zrs/parameters/copy_tail_kib"
check_lines python3 "$(dirname "$0")/tail.py"
check "nothing is left of them" zrs_idle
check "no page stays pinned" unpinned
ktap_done
