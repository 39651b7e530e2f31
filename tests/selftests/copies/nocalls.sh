#!/bin/bash
# While data flows, a reader of a ring makes no system call.
# rows: B3
# debug: no
# timeout: 90
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

TRACING=/sys/kernel/tracing/events/raw_syscalls/sys_enter
MIB=8

ktap_start
start server B "listening on" zrs-selftest ringspin --mib $MIB --server "$ADDR_B:7000" || ktap_bail "server"
pid=$(sed -n 's/.*listening on .*, process //p' "$TMP/server" | head -1)
echo "common_pid==$pid" >$TRACING/filter && echo 1 >$TRACING/enable || ktap_bail "system calls cannot be traced"
at_end "echo 0 >$TRACING/enable; echo 0 >$TRACING/filter"
check "$MIB MiB, sent" A zrs-selftest ringspin --mib $MIB --client "$ADDR_B:7000"
check_ended "and read by the ring" server
# calls: those between the marks, by number; getpid() is 39.
calls() {
	sed -n 's/.* sys_enter: NR \([0-9]*\) .*/\1/p' /sys/kernel/tracing/trace |
		awk '$1 == 39 { marks++; next } marks == 1 { calls[$1]++; n++ }
			END { printf "%d marks, %d calls", marks, n; for (nr in calls) printf ", %d of number %d", calls[nr], nr; print "" }'
}
check_eq "without a system call" "2 marks, 0 calls" "$(calls)"
ktap_done
