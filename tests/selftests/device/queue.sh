#!/bin/bash
# A device that says of its shared receive queue that it has failed (IB_EVENT_SRQ_ERR): all connections of the
# device end at once, not when a heartbeat is missed, and new ones are on another queue, as the RDMA core counts
# them. A device that says that few blocks are left in the queue (IB_EVENT_SRQ_LIMIT_REACHED) gets 32 more, until
# messages come, and tells it no more than once a second. A test's module says both (tests/lib/rdmaevent).
# rows: B9 E5 B17
# hosts: own
# test-module: tests/lib/rdmaevent
# module: none
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
log_all
insmod /zrs/build/tests/lib/rdmaevent/rdmaevent.ko || ktap_bail "rdmaevent.ko"
at_end "rmmod rdmaevent"
# It knows the queues that are made from now on.
zrs_load heartbeat_ms=0 dead_ms=600000 || ktap_bail "the module does not load"
fail() { "$1" sh -c "echo $2 >/sys/module/rdmaevent/parameters/srq_error"; }
low() { "$1" sh -c "echo $2 >/sys/module/rdmaevent/parameters/srq_limit"; }
said() { dmesg | grep -c "lost: its shared receive queue has failed"; }
# queues HOST: the numbers of its shared receive queues.
queues() {
	local dev=DEV_$1
	rdma resource show srq | sed -n "s/.*dev ${!dev} srqn \([0-9]*\).*/\1/p" | sort -n | xargs
}
# one_other HOST WAS: it has one shared receive queue, which is not WAS.
one_other() {
	local _
	for _ in $(seq 1 $((20 * PATIENCE))); do
		[[ $(queues "$1") =~ ^[0-9]+$ && $(queues "$1") != "$2" ]] && return
		nap 0.2
	done
	ktap_say "$(rdma resource show srq)"
	return 1
}
define_probes "the limit of a queue" "limit ib_modify_srq"
# limits: how often the limit of a queue was set.
limits() { grep -c 'limit:' $TRACING/trace; }
# blocks: those in use of A's device.
blocks() { zrs pool --json | jq -r ".pools[] | select(.device == \"$DEV_A\") | .blocks"; }
port=7000
for device in "A va" "B vb"; do
	read -r host netdev <<<"$device"
	for i in 1 2 3; do
		port=$((port + 1))
		start "receiver$i" B "listening on" zrs-selftest stream-recv --listen "$ADDR_B:$port" --expect reset &&
			start "sender$i" A sending zrs-selftest stream-send "$ADDR_B:$port" --expect reset &&
			says "receiver$i" receiving || ktap_bail "traffic"
	done
	was=$(queues "$host")
	if [ -z "$was" ]; then
		ktap_skip "a shared receive queue that fails" "the device has none"
		ktap_done
	fi
	logged=$(said)
	check "the queue of $netdev fails" fail "$host" "$netdev"
	for i in 1 2 3; do
		check_ended "ECONNRESET for sender $i" "sender$i"
		check_ended "what arrived, then ECONNRESET for receiver $i" "receiver$i"
	done
	check "the log says why" test "$(said)" -gt "$logged"
	check_pair "a new connection" xfer --sizes 1,5000,300000 --both
	check "is on another queue, and the failed one is gone" one_other "$host" "$was"
done
# Without links, no end of a link replaces the queue.
check "the module is unloaded" zrs_unload
check "and loaded" zrs_load
check "a socket" A zrs-selftest hold --what socket
was=$(queues A)
check "makes a shared receive queue" test -n "$was"
check "the queue of a device without links fails" fail A va
check "another one takes its place" one_other A "$was"
check_pair "a connection by it" xfer --sizes 1,5000,300000 --both
# A link ends soon after the last socket of its namespace.
start heldA A holding zrs-selftest hold --what listen --addr 0.0.0.0:7800 || ktap_bail "a socket of A"
start heldB B holding zrs-selftest hold --what listen --addr 0.0.0.0:7800 || ktap_bail "a socket of B"
check_pair "messages" pingpong --conns 1 --rounds 200 --most 100
was=$(blocks)
echo 1 >$TRACING/events/zrstest/enable
check "few blocks are left in a queue" low A va
check "and again, at once" low A va
check_becomes "more are posted" $((was + 32)) blocks
check_becomes "the limit is set again" 1 limits
nap 2
check_eq "once" 1 "$(limits)"
check_pair "messages" pingpong --conns 1 --rounds 200 --most 100
check_becomes "take them away" "$was" blocks
ktap_done
