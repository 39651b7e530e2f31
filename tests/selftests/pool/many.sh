#!/bin/bash
# Many connections that send a message of 4 KiB each, all at once, into a small pool, while no
# program reads: all of them arrive, and the shared receive queue never runs dry.
# rows: C1 C2 C3 Z2
# params: pool_mib=1
# debug: full
# timeout: 60
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
conns=$(less 1000)
ulimit -n $((conns + 1000)) || ktap_bail "ulimit -n"
limit=$((55 * SCALE))
for policy in never always; do
	echo "$policy" >/sys/module/zrs/parameters/escape || ktap_bail "the policy $policy"
	ktap_say "policy $policy"
	start server B "listening on" zrs-selftest --limit "$limit" burst --server "$ADDR_B:7000" --conns "$conns" ||
		ktap_bail "the server"
	check_lines A zrs-selftest --limit "$limit" burst --client "$ADDR_B:7000" --conns "$conns"
	check_ended "the server of $conns connections" server
done
check "nothing is left of them" zrs_idle
ktap_done
