#!/bin/bash
# Many connections that are made, used for a byte each way and ended, CHURN of them, some at a time,
# either side being the first to end them: nothing of them is left.
# rows: B4 B5 L1 L2 L3
# params: connect_timeout_ms=20000
# debug: full
# timeout: 180
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
churn=$(less "${CHURN:-10000}")
limit=$(((100 + churn / 100) * SCALE))

churn() {
	start server B "listening on" zrs-selftest --limit "$limit" churn --server "$ADDR_B:7000" --conns "$1" ||
		ktap_bail "the server"
	check_lines A zrs-selftest --limit "$limit" churn --client "$ADDR_B:7000" --conns "$1"
	check_ended "the server of $1 connections" server
}
at_rest() {
	check "nothing is left of them" zrs_idle
	kernel_memory "$1"
}

# A first run, for one-time allocations.
churn $((churn / 5))
at_rest before
# shellcheck disable=SC2154 # kernel_memory sets it
before=$kernel_kb
churn "$churn"
at_rest after
grown=$((kernel_kb - before))
ktap_say "$churn connections that came and went leave $grown KiB of kernel memory behind"
no_leak before after "$grown" "$churn"
ktap_done
