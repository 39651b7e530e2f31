#!/bin/bash
# A window that is full: EAGAIN and short counts, then POLLOUT and completion.
# rows: Z5 E4
# machines: any
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
port=7000
for how in "" --ring; do
	port=$((port + 1))
	start server B "listening on" zrs-selftest fullwindow ${how:+$how} --server "$ADDR_B:$port" || ktap_bail "server"
	ktap_say "drained ${how:-plain}"
	check_lines A zrs-selftest fullwindow --client "$ADDR_B:$port" --more "$(less 8192)k"
	check_ended "the server got every byte" server
done
ktap_done
