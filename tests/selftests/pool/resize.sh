#!/bin/bash
# The pool becomes larger and smaller, and the policy another, while bulk data goes through it: its
# size follows, what is in use too, transfers go on, and every byte is right.
# rows: C2 C3 C5 Z2
# timeout: 90
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
# resize TEXT SETTINGS ARGS...
resize() {
	local text=$1
	local args=(--conns "$(less 12)" --limit $((80 * SCALE)) --settings "$2" "${@:3}")
	ktap_say "$text"
	start server B "listening on" zrs-selftest bulk --server "$ADDR_B:7000" "${args[@]}" || ktap_bail "the server"
	check_lines A zrs-selftest bulk --client "$ADDR_B:7000" "${args[@]}"
	check_ended "the server, $text" server
}
resize "recv()" 1:always,16:never,2:under-pressure,8:always,3:never,1:under-pressure,8:under-pressure
# A window that a ring shows cannot be revoked.
resize "some rings" 4:always,16:never,3:under-pressure,8:under-pressure --rings 1
check_eq "the shared queue never ran dry" 0 "$(cache dry)"
check_eq "no link was closed by an error" 0 "$(counter protocol_errors)"
check "no window is leaked" zrs_idle
# Without connections, too.
for mib in 64 1; do
	echo "$mib" >/sys/module/zrs/parameters/pool_mib
	check_eq "an idle pool of $mib MiB" $((mib << 20)) "$(cache bytes)"
done
check_fails "no policy that there is not" "Invalid argument" set_param escape sometimes
check_eq "and it is as it was" under-pressure "$(cat /sys/module/zrs/parameters/escape)"
ktap_done
