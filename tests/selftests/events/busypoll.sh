#!/bin/bash
# Calls that poll before they sleep: that they do poll, and sleep afterwards; data, limits of time,
# signals, and others on the same link.
# rows: E3
# debug: full
# timeout: 150
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
# A window that fills stays full.
echo never >/sys/module/zrs/parameters/escape || ktap_bail "the policy"
start serve B "listening on" zrs-selftest serve "$ADDR_B:7000" || ktap_bail "serve"
check_lines A zrs-selftest busypoll --peer "$ADDR_B:7000"
# For poll() and select() there is the kernel's own setting as well, in microseconds: longer than
# the timeouts of the calls, and shorter.
BUSY=/proc/sys/net/core/busy_poll
STATS=/proc/sys/kernel/sched_schedstats
if [ -e $BUSY ]; then
	at_end "echo $(cat $BUSY) >$BUSY"
	[ ! -e $STATS ] || {
		at_end "echo $(cat $STATS) >$STATS"
		echo 1 >$STATS
	}
	times="1000000 100000"
	[ "$SCALE" = 1 ] || [ "${TIER:-ci}" = full ] || times=1000000
	for us in $times; do
		echo $us >$BUSY
		ktap_say "with net.core.busy_poll $us:"
		check_lines A zrs-selftest busypoll --peer "$ADDR_B:7000" --busy-poll $us
	done
else
	ktap_skip "poll() and select() that poll" "this kernel has no net.core.busy_poll"
fi
ktap_done
