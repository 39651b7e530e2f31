#!/bin/bash
# A window that is full: EAGAIN and short counts, then POLLOUT and completion.
# rows: Z5 E4
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
for how in "" --ring; do
	start server B "listening on" zrs-selftest fullwindow $how --server "$ADDR_B:7001${how:+1}" || ktap_bail "server"
	ktap_say "drained ${how:-plain}"
	check_lines A zrs-selftest fullwindow --client "$ADDR_B:7001${how:+1}"
	check_ended "the server got every byte" server
done
ktap_done
