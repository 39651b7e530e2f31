#!/bin/bash
# The table of states against events (uapi.rst, Readiness): each row by poll(), select() and epoll,
# level, edge and one-shot, each event asked for alone; and the same rows over TCP.
# rows: E1 E4
# params: connect_timeout_ms=20000
# timeout: 240
# debug: full
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
# Nobody has that address.
check_lines A zrs-selftest states --local "$ADDR_A" --nowhere 10.77.0.99:7000
ktap_say "over TCP:"
check_lines A zrs-selftest --protocol 6 states --local "$ADDR_A" --nowhere 10.77.0.99:7000
ktap_done
