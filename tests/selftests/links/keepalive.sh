#!/bin/bash
# SO_KEEPALIVE where the module has no heartbeats: a peer that is cut off is noticed. SO_LINGER:
# close() waits while the peer is cut off.
# debug: full
# rows: B12 B6
# hosts: none
# params: connect_timeout_ms=5000 heartbeat_ms=0 ack_timeout_ms=500 retry_count=6
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../../lib/hostile.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
hostile_up || ktap_bail "three hosts on a bridge"
start serve B "listening on" zrs-selftest serve "$ADDR_B:7000" || ktap_bail "serve"
start other A waiting zrs-selftest lost "$ADDR_B:7000" || ktap_bail "another one, without SO_KEEPALIVE"
start idle A waiting zrs-selftest lost "$ADDR_B:7000" --keepalive 1 --errno ETIMEDOUT || ktap_bail "an idle connection"
sent=$(counter work_requests)
nap 5
check "the peer is asked while nothing happens" [ $(($(counter work_requests) - sent)) -ge 2 ]
check "and as it answers, the connection lives" kill -0 "${PID[idle]}"
check "B is cut off" port b down
check_ended "a program that waits for nothing but the end is told" idle 30
check_ended "and one that has not asked for a time finds its connection broken" other 30
check "B is back" port b up
stop serve
start serve B "listening on" zrs-selftest serve "$ADDR_B:7001" || ktap_bail "serve"
check_lines A zrs-selftest linger "$ADDR_B:7001" --cut "bridge -n zrsL link set dev lb state 0"
ktap_done
