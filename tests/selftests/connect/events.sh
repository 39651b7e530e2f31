#!/bin/bash
# Each event of the connection manager has its reaction, on both sides, while a link is made and
# when it is
# up: the errno that programs see, what happens to the link, and that the next one works.
# hosts: own
# rows: E5 B9
# debug: only
# params: connect_timeout_ms=20000
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

TRACING=/sys/kernel/tracing
traced() {
	echo >$TRACING/trace && echo 1 >$TRACING/events/rdma_cma/cm_event_handler/enable &&
		at_end "echo 0 >$TRACING/events/rdma_cma/cm_event_handler/enable"
}
# late HOST: how often resolving its address has timed out.
late() { grep -c "dst=$1:.* ADDR_ERROR (1/-110)" $TRACING/trace; }
# came HOST: waits for the first of those; without a process.
came() {
	local _ text="dst=$1:340 tos=0 ADDR_ERROR (1/-110)"
	for _ in $(seq $((100 * PATIENCE))); do
		! has $TRACING/trace "$text" || return 0
		nap 0.01
	done
	return 1
}

ktap_start
check "the events are traced" traced
# ADDR_ERROR with ETIMEDOUT cannot be injected: the core's id is in another state then. Seven
# attempts, from 10 ms to 640 ms, take less than connect_timeout_ms.
check_lines A zrs-selftest refused 10.77.0.99:7000 --errno ETIMEDOUT
check_eq "resolving is tried seven times for each of the two" 14 "$(late 10.77.0.99)"
# A host whose address becomes known when the first attempt has given up. A sends no ARP requests
# for it.
read -r _ _ mac _ < <(ip -n zrsB -br link show vb)
mkfifo "$TMP/later"
exec {later}<>"$TMP/later"
start neighbour - "" ip -n zrsA -force -batch "$TMP/later"
A sh -c 'echo 0 >/proc/sys/net/ipv4/neigh/va/mcast_solicit'
ip -n zrsA neigh flush dev va
start server B "listening on" zrs-selftest xfer --server "$ADDR_B:7000" --sizes 1,100000 --both ||
	ktap_bail "server"
start client A "" zrs-selftest xfer --client "$ADDR_B:7000" --sizes 1,100000 --both
check "ADDR_ERROR ETIMEDOUT of a host" came "$ADDR_B"
echo "neigh replace $ADDR_B lladdr $mac dev va" >&"$later"
check_ended "it is found by a later attempt" client
check_ended "and served" server
stop neighbour

# Clients that may use TCP: each event while a link is made has its reason. They wait for the event, and
# not for fallback_ms.
echo 60000 >/sys/module/zrs/parameters/fallback_ms
check_lines zrs-selftest faults --what events --beside --addr "$ADDR_B" --scale "$SCALE"
check_lines zrs-selftest faults --what events --addr "$ADDR_B" --scale "$SCALE"
# Nothing is left of all the links.
none_of_ours() {
	local _
	for _ in $(seq 1 $((100 * PATIENCE))); do
		rdma resource show "$1" | grep -F '[zrs]' || return 0
		nap 0.1
	done
	return 1
}
check "no queue pair is left" none_of_ours qp
check "no id is left" none_of_ours cm_id
ktap_done
