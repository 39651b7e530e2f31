#!/bin/bash
# SO_RCVBUF: the largest window that a socket leases to its peer, set before and after it is connected, with and without
# a ring; how much a peer can send that nobody reads.
# rows: Z1 C5
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
check_lines A zrs-selftest rcvbuf --local "$ADDR_A"
ktap_done
