#!/bin/bash
# SO_KEEPALIVE with its times and TCP_USER_TIMEOUT: a connection whose peer is cut off, or does not
# read, ends in its own time with ETIMEDOUT, and others on the same link, which the device has not
# given up, go on.
# rows: B12 Z1
# hosts: none
# params: connect_timeout_ms=5000 heartbeat_ms=0 ack_timeout_ms=8000 retry_count=6
# debug: full
# timeout: 240
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../../lib/hostile.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
hostile_up || ktap_bail "three hosts on a bridge"
check_lines A zrs-selftest patience --local "$ADDR_A" --limit "$((200 * SCALE))"
start serve B "listening on" zrs-selftest serve "$ADDR_B:7000" || ktap_bail "serve"
check_lines A zrs-selftest cutoff "$ADDR_B:7000" --cut "bridge -n zrsL link set dev lb state 0" \
	--mend "bridge -n zrsL link set dev lb state 3"
check_pair "connections after that" xfer --sizes 1,5000,300k
stop serve
check "nothing is left" zrs_idle
ktap_done
