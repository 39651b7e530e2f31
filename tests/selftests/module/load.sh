#!/bin/bash
# The module loads into the stock kernel and unloads again, 50 times, with memory back where it was.
# rows: B9
# module: none
# hosts: none
# timeout: 180
. "$(dirname "$0")/../../lib/ktap.sh"

ktap_start 3
check "loads" zrs_load
check "unloads" zrs_unload

# Unreclaimable kernel memory after a settling round; page caches and the like come and go.
kernel_kb() {
	sync
	echo 3 >/proc/sys/vm/drop_caches
	awk '/^(SUnreclaim|VmallocUsed|PageTables|Percpu):/ { s += $2 } END { print s }' /proc/meminfo
}
rounds() {
	local i
	for i in $(seq "$1"); do
		zrs_load || { echo "round $i does not load"; return 1; }
		zrs_unload || { echo "round $i does not unload"; return 1; }
	done
}
rounds 5 >/dev/null
before=$(kernel_kb)
if rounds 50; then
	grown=$(($(kernel_kb) - before))
	ktap_say "kernel memory grew by $grown KiB in 50 rounds"
	# Less than 8 KiB a round: an unreturned pool would be megabytes.
	if [ "$grown" -lt 400 ]; then
		ktap_pass "50 rounds leave memory where it was"
	else
		ktap_fail "50 rounds cost $grown KiB"
	fi
else
	ktap_fail "50 rounds"
fi
ktap_done
