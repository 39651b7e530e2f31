#!/bin/bash
# The module is unloaded and loaded again on one machine while the other one has connections to it.
# rows: B9 B12 E5
# params: connect_timeout_ms=4000
# timeout: 120
. "$(dirname "$0")/../lib/ktap.sh"
. "$(dirname "$0")/lib.sh"

ktap_start
start serve A "listening on" zrs-selftest serve "$ADDR_A:7000" &&
	start inA A "listening on" zrs-selftest stream-recv --listen "$ADDR_A:7001" --expect eof &&
	start toA B sending zrs-selftest stream-send "$ADDR_A:7001" --expect epipe,reset &&
	start hold B holding zrs-selftest hold --what conn --addr "$ADDR_A:7000" &&
	start inB B "listening on" zrs-selftest stream-recv --listen "$ADDR_B:7002" --expect eof,reset &&
	start toB A sending zrs-selftest stream-send "$ADDR_B:7002" --expect epipe,reset ||
	ktap_bail "traffic"
check_fails "zrs.ko stays while A has sockets" "in use" A rmmod zrs
check "A's programs are killed" A jobs_kill
check "zrs.ko leaves A" A module_out
check_ended "B's sender gets an error" toA
check_ended "B's receiver the end" inB
check_lines B zrs-selftest refused "$ADDR_A:7000" --errno ECONNREFUSED,ETIMEDOUT
check "zrs.ko comes back" A zrs_load connect_timeout_ms=4000
start serve A "listening on" zrs-selftest serve "$ADDR_A:7000" || ktap_bail "serve"
check_within "B connects to A" 15 B zrs-selftest poll --peer "$ADDR_A:7000" --local "$ADDR_B" --refused "$ADDR_A:7999"
check_pair "and A to B" xfer --sizes 1,5000,300000 --both
ktap_done
