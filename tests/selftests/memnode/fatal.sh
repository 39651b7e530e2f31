#!/bin/bash
# A device that reports a fatal error, and completes no work request any more: its memory links end at once, not when
# the peer is silent, and new ones can be made. A test's module says so (tests/lib/rdmaevent), of a device that
# still works.
# rows: M4 B9 E5
# hosts: none
# test-module: tests/lib/rdmaevent
# params: heartbeat_ms=0 dead_ms=600000
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/memnode.sh"

fail() { "$1" sh -c "echo $2 >/sys/module/rdmaevent/parameters/fatal"; }
# pairs HOST: the numbers of the queue pairs on its device; no other module connects any.
pairs() {
	local dev=DEV_$1
	"$1" rdma resource show qp | sed -n "s/.*link ${!dev}\/.* lqpn \([0-9]*\) .* type RC .*/\1/p" | sort -n | xargs
}
# gone HOST NUMBERS: none of these queue pairs is there any more.
gone() {
	local _ n left
	for _ in $(seq 1 $((20 * PATIENCE))); do
		left=" $(pairs "$1") "
		for n in $2; do
			[[ $left != *" $n "* ]] || { nap 0.2; continue 2; }
		done
		return
	done
	ktap_say "$2 were there,$left are"
	return 1
}

ktap_start
insmod /zrs/build/tests/lib/rdmaevent/rdmaevent.ko || ktap_bail "rdmaevent.ko"
at_end "rmmod rdmaevent"
nodes_up || ktap_bail "three hosts and two nodes"
head -c 1000000 /dev/urandom >"$TMP/file"
region=$(A zrs mem put "$TMP/file" 1:1) || ktap_bail "a region"
right() { [ "$(A zrs mem get "$region" "$TMP/back" 2>"$TMP/err" && sum "$TMP/back")" = "$(sum "$TMP/file")" ]; }
# Without an open region the host would end its links.
start holder A holding python3 -c '
import sys, time
sys.path.insert(0, "/zrs/userspace/examples")
import zrs_mem
region = zrs_mem.opened(sys.argv[1])
print("holding", flush=True)
time.sleep(600)' "$region" || ktap_bail "an open region"
for device in "A va" "B vb"; do
	read -r host netdev <<<"$device"
	check "the region is read" right
	was=$(pairs "$host")
	check "by a link" test -n "$was"
	check "the device of $netdev fails" fail "$host" "$netdev"
	check "its links are gone" gone "$host" "$was"
	# The other host learns it from the connection manager, perhaps during the first call.
	check "the region is read by another link" eval "right || right"
done
stop holder
check "and freed" A zrs mem free "$region"
ktap_done
