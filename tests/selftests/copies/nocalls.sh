#!/bin/bash
# While data flows, a reader of a ring makes no system call: for bulk data, and for small messages.
# rows: B3 C4
# debug: no
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

TRACING=/sys/kernel/tracing/events/raw_syscalls/sys_enter
MIB=8
SMALL=500

ktap_start
# calls: those between the marks, by number; getpid() is 39.
calls() {
	sed -n 's/.* sys_enter: NR \([0-9]*\) .*/\1/p' /sys/kernel/tracing/trace |
		awk '$1 == 39 { marks++; next } marks == 1 { calls[$1]++; n++ }
			END { printf "%d marks, %d calls", marks, n; for (nr in calls) printf ", %d of number %d", calls[nr], nr; print "" }'
}
at_end "echo 0 >$TRACING/enable; echo 0 >$TRACING/filter"
# On a busy machine the reader may fall behind, and the module asks for the doorbell: one of several connections has no
# call.
port=7000
# without TEXT ARGS...: data that the reader reads by its ring.
without() {
	local try at pid text=$1 seen=
	shift
	for try in 1 2 3; do
		port=$((port + 1))
		at=$ADDR_B:$port
		echo 0 >$TRACING/enable
		start server B "listening on" zrs-selftest ringspin "$@" --server "$at" || ktap_bail "server"
		pid=$(sed -n 's/.*listening on .*, process //p' "$TMP/server" | head -1)
		echo >/sys/kernel/tracing/trace
		echo "common_pid==$pid" >$TRACING/filter && echo 1 >$TRACING/enable || ktap_bail "system calls cannot be traced"
		check "$text, sent" A zrs-selftest ringspin "$@" --client "$at"
		check_ended "and read by the ring" server
		seen=$(calls)
		[ "$seen" != "2 marks, 0 calls" ] || break
		ktap_say "try $try: $seen"
	done
	check_eq "without a system call" "2 marks, 0 calls" "$seen"
}
without "$MIB MiB" --mib $MIB
without "$SMALL messages of 1 to 4096 bytes" --small $SMALL --pause 20
ktap_done
