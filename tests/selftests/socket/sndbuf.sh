#!/bin/bash
# SO_SNDBUF: the copies and pages that a socket holds while its peer is cut off, waiting senders and
# their wake-ups; every byte arrives, however little may be held.
# rows: Z1 E4
# debug: full
# hosts: none
# params: connect_timeout_ms=5000 ack_timeout_ms=2000 retry_count=6
# timeout: 300
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../../lib/hostile.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
hostile_up || ktap_bail "three hosts on a bridge"
LIMIT=200 check_pair "every byte arrives" sndbuf
start server B "listening on" zrs-selftest sndbuf --server "$ADDR_B:7100" || ktap_bail "the server"
check_lines A zrs-selftest sndbuf --client "$ADDR_B:7100" --cut "bridge -n zrsL link set dev lb state 0" \
	--mend "bridge -n zrsL link set dev lb state 3"
check_ended "and what was held arrives" server
check "no page is pinned any more" unpinned
ktap_done
