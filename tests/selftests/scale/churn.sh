#!/bin/bash
# Many connections that are made, used for a byte each way and ended, CHURN of them, some at a time, either
# side being the first to end them: nothing of them is left.
# rows: B4 B5 L1 L2 L3
# timeout: 300
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
kernel_kb_at_rest() {
	check "nothing is left of them" zrs_idle
	kernel=$(kernel_kb)
}

# The same before, so that caches are full.
churn $((churn / 5))
kernel_kb_at_rest
# Slabs that are not full come and go by some hundred KiB; ten bytes of each connection would be as much as the
# rest. Once in a while something else in the guest takes more: what is lost is lost each time. The debug kernel keeps what
# is freed for a while, and looks for leaks itself.
for attempt in 1 2 3; do
	before=$kernel
	churn "$churn"
	kernel_kb_at_rest
	ktap_say "$churn connections that came and went leave $((kernel - before)) KiB of kernel memory behind"
	[ "${ZRS_KERNEL:-stock}" = stock ] || ktap_done
	if [ $((kernel - before)) -lt $((1024 + churn / 100)) ]; then break; fi
done
check "kernel memory is where it was, at attempt $attempt" [ $((kernel - before)) -lt $((1024 + churn / 100)) ]
ktap_done
