#!/bin/bash
# SO_RCVBUF: the largest window that a socket leases to its peer, set before and after it is
# connected, while a grant is in flight, with and without a ring; the limit of unread data that a
# peer can send.
# rows: Z1 C5
# hosts: none
# params: table_sweep_ms=3600000
# debug: full
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../../lib/hostile.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
hostile_up || ktap_bail "three hosts on a bridge"
hostile windows/rcvbuf
check_lines A zrs-selftest rcvbuf --local "$ADDR_A"
ktap_done
