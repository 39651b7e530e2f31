#!/bin/bash
# Calls that poll before they sleep: data, limits of time, signals, and others on the same link.
# rows: E3
# timeout: 90
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
start serve B "listening on" zrs-selftest serve "$ADDR_B:7000" || ktap_bail "serve"
check_lines A zrs-selftest busypoll --peer "$ADDR_B:7000"
# For poll() and select() there is the kernel's own setting as well, in microseconds.
BUSY=/proc/sys/net/core/busy_poll
if [ -e $BUSY ]; then
	at_end "echo $(cat $BUSY) >$BUSY"
	echo 20000 >$BUSY
	ktap_say "with net.core.busy_poll:"
	check_lines A zrs-selftest busypoll --peer "$ADDR_B:7000"
else
	ktap_skip "poll() and select() that poll" "this kernel has no net.core.busy_poll"
fi
ktap_done
