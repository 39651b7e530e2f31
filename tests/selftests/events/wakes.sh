#!/bin/bash
# Wake-ups, counted: one process for one connection; none by events for others; and 100 idle
# connections use no processor, except for their heartbeats.
# rows: E1 E3
# params: heartbeat_ms=1000
# timeout: 180
# debug: full
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
start serve B "listening on" zrs-selftest serve "$ADDR_B:7000" || ktap_bail "serve"
wakes() { A zrs-selftest "$@" --peer "$ADDR_B:7000" --local "$ADDR_A"; }
check_lines wakes wakes --what herd
check_lines wakes wakes --what others --bytes "$(less 8)M"
start tcp B "listening on" zrs-selftest --protocol 6 serve "$ADDR_B:7000" || ktap_bail "serve"
ktap_say "over TCP:"
check_lines wakes --protocol 6 wakes --what herd
check_lines wakes --protocol 6 wakes --what others --bytes "$(less 8)M"

# Work items of the module, while it is idle: only those of a heartbeat, on either side of the link.
TRACING=/sys/kernel/tracing
mount -t tracefs tracefs $TRACING 2>/dev/null
SECS=10
work_items() { grep -c 'workqueue_execute_start.*\[zrs\]' $TRACING/trace; }
start idle A "idle" zrs-selftest wakes --what idle --peer "$ADDR_B:7000" --local "$ADDR_A" --seconds $((SECS + 4 * SCALE)) ||
	ktap_bail "idle connections"
sent=$(counter work_requests)
echo >$TRACING/trace
at_end "echo 0 >$TRACING/events/workqueue/workqueue_execute_start/enable"
echo 1 >$TRACING/events/workqueue/workqueue_execute_start/enable
nap $SECS
echo 0 >$TRACING/events/workqueue/workqueue_execute_start/enable
sent=$(($(counter work_requests) - sent)) ran=$(work_items)
ktap_say "in $SECS idle seconds: $sent messages, $ran work items of the module"
check "heartbeats went by" test "$sent" -ge 4
check "and hardly anything ran beside them" test "$ran" -le $((sent * 2 + SECS * 2))
check_ended "nobody was woken by them, and no time was used" idle 60
ktap_done
