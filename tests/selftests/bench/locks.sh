#!/bin/bash
# Lock acquisitions of a message of 64 bytes one way, by lock class, are within the bounds of the
# baseline.
# rows: B20 L2
# debug: only
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

TRACING=/sys/kernel/tracing
N=256

# traced NAME ARGS...: the acquisitions while the messages went are in $TMP/NAME.
traced() {
	local name=$1
	shift
	echo >$TRACING/trace
	nsenter --net=/run/netns/zrsA zrs-selftest --limit $((50 * SCALE)) oneway --netns /run/netns/zrsB --messages $N --switch $TRACING/tracing_on "$@" &&
		cat $TRACING/trace >"$TMP/$name"
}
# compare: the last measurement with the baseline.
compare() {
	zrs-bench-report locks "$TMP/messages" --idle "$TMP/idle" --messages $N --baseline "$KTAP_LIB/../baseline.json" \
		--key "$(baseline_key)"
}

ktap_start
[ -e $TRACING/events/lock/lock_acquire ] || ktap_bail "this kernel has no event lock_acquire"
was=$(cat $TRACING/buffer_size_kb)
at_end "echo 0 >$TRACING/events/lock/lock_acquire/enable; echo 1 >$TRACING/tracing_on; echo ${was%% *} >$TRACING/buffer_size_kb"
echo 0 >$TRACING/tracing_on
echo 16384 >$TRACING/buffer_size_kb
echo 1 >$TRACING/events/lock/lock_acquire/enable
# Threads that have to wait add to the acquisitions: one of several measurements is within the bounds.
for try in 1 2 3; do
	check "$N messages" traced messages --to "$ADDR_B:$((7000 + 2 * try))"
	check "their acknowledgments alone, twice" traced idle --to "$ADDR_B:$((7001 + 2 * try))" --unix
	! compare >"$TMP/compared" 2>&1 || break
	ktap_say "measurement $try: $(grep '^not ok' "$TMP/compared" | tr '\n' ';')"
done
# The events stay, for classes that the table does not know yet.
cp "$TMP/messages" /results/locks-messages.trace
cp "$TMP/idle" /results/locks-idle.trace
check_lines compare
ktap_done
