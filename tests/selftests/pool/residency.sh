#!/bin/bash
# When unread data leaves the pool with the policy always: after residency_us, and not much later.
# The times are those of the kernel's trace.
# rows: C5
# timeout: 150
# debug: full
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

TRACING=/sys/kernel/tracing
PARAMS=/sys/module/zrs/parameters
TIMES=5
cat >"$TMP/client.py" <<'PY'
import os, socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 253)
s.connect(("10.77.0.2", 7000))
s.send(b"T")
print("connected", flush=True)
# The mark of the trace, which has no path in the network namespace.
mark = os.fdopen(3, "w", buffering=1)
for line in sys.stdin:
    mark.write("begins\n")
    s.sendall(bytes(int(line)))
    mark.write("sent\n")
PY

# escapes: how many there were.
escapes() { grep -c ' zrs_escape: ' $TRACING/trace; }
# escape N: waits for the Nth.
escape() {
	local _
	for _ in $(seq 1 $((200 * PATIENCE))); do
		[ "$(escapes)" -lt "$1" ] || return 0
		nap 0.05
	done
	return 1
}
# ages: of each message that has escaped, how many microseconds after its send began and ended, and its age by the module.
ages() {
	sed -n 's/^.* \([0-9]*\)\.\([0-9]*\): \(tracing_mark_write\|zrs_escape\): \(.*\)$/\1\2 \4/p' $TRACING/trace |
		sed 's/age_us=//' | awk '
		$2 == "begins" { begins = $1 }
		$2 == "sent" { sent = $1 }
		/ of=/ { print $1 - begins, $1 - sent, $NF }'
}

ktap_start
mount -t tracefs tracefs $TRACING 2>/dev/null
[ -d $TRACING/events/zrs ] || {
	ktap_skip "times of escape" "this kernel has no tracepoints"
	ktap_done
}
at_end "echo 0 >$TRACING/events/zrs/enable; echo >$TRACING/trace; echo local >$TRACING/trace_clock"
echo always >$PARAMS/escape || ktap_bail "the policy"
echo mono >$TRACING/trace_clock
start serve B "listening on" zrs-selftest serve "$ADDR_B:7000" || ktap_bail "serve"
mkfifo "$TMP/go"
exec {go}<>"$TMP/go"
A python3 "$TMP/client.py" <"$TMP/go" >"$TMP/client" 2>&1 {go}>&- 3>$TRACING/trace_marker &
# shellcheck disable=SC2154,SC2034 # a key; lib.sh reads it
PID[client]=$!
at_end "kill -9 $!; wait $!"
says client connected || ktap_bail "the connection"
# The server reads the first byte.
nap 1
echo 1 >$TRACING/events/zrs/zrs_escape/enable
# leaves TEXT BYTES RESIDENCY_US: sends messages of BYTES bytes, one after the other, and looks at
# their ages.
leaves() {
	local n least
	echo "$3" >$PARAMS/residency_us || ktap_bail "the time"
	echo >$TRACING/trace
	for n in $(seq 1 $TIMES); do
		echo "$2" >&"$go"
		escape "$n" || break
	done
	ages >"$TMP/ages"
	ktap_say "$1, residency_us=$3: $(paste -sd';' "$TMP/ages")"
	check_eq "$1: messages that have escaped" $TIMES "$(wc -l <"$TMP/ages")"
	check_eq "$1: none of them before $3 us" 0 "$(awk -v least="$3" '$1 < least || $3 < least' "$TMP/ages" | wc -l)"
	# A busy machine is late now and then, not each time.
	least=$(cut -d' ' -f2 "$TMP/ages" | sort -n | head -1)
	check "$1: after $least us, which is not long after $3" [ "${least:-0}" -le $(($3 * 2 + 100000 * SCALE)) ]
}
leaves "large messages" 65536 100000
leaves "large messages" 65536 1000000
leaves "small messages" 1000 100000
ktap_done
