#!/bin/bash
# The connection manager's last message (RTU) is lost, so that the accepting host's connection manager does not know
# that the link is there. The link works all the same; and when the device says that a message has arrived
# (IB_EVENT_COMM_EST), the connection manager learns it. A test's module drops the message and says so
# (tests/lib/rdmaevent), as Soft-RoCE does not.
# rows: B9 E2 B17
# hosts: own
# test-module: tests/lib/rdmaevent
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

PARAMETERS=/sys/module/rdmaevent/parameters
EVENT=$TRACING/events/rdma_cma/cm_event_handler
# established: the trace's events of the connection manager that say so, of ids whose own address is host B's.
established() { grep -cE "src=$ADDR_B:[0-9]+ .*ESTABLISHED" $TRACING/trace; }
# wait_established N: N events or more.
wait_established() {
	local _
	for _ in $(seq 1 $((20 * PATIENCE))); do
		[ "$(established)" -ge "$1" ] && return
		nap 0.2
	done
	return 1
}

ktap_start
insmod /zrs/build/tests/lib/rdmaevent/rdmaevent.ko || ktap_bail "rdmaevent.ko"
at_end "rmmod rdmaevent"
mount -t tracefs tracefs $TRACING 2>/dev/null
if [ ! -e $EVENT ]; then
	ktap_skip "events of the connection manager" "this kernel has no trace event for them"
	ktap_done
fi
at_end "echo 0 >$EVENT/enable; echo >$TRACING/trace"
echo >$TRACING/trace
echo 1 >$EVENT/enable
check "RTU messages are lost" A sh -c "echo 1 >$PARAMETERS/drop_rtu"
start serve B "listening on" zrs-selftest serve "$ADDR_B:7000" || ktap_bail "serve"
# Within the minute in which the connection manager repeats its own message (REP).
start conn A holding zrs-selftest hold --what conn --addr "$ADDR_B:7000" || ktap_bail "a connection"
check_eq "and host B's connection manager does not know the link" 0 "$(established)"
check "the device says that a message has arrived" B sh -c "echo vb >$PARAMETERS/comm_est"
check "the connection manager has learnt it" wait_established 1
check "and again" B sh -c "echo vb >$PARAMETERS/comm_est"
check_pair "a connection works" xfer --sizes 1,5000,300000 --both
check_eq "the link has been established once" 1 "$(established)"
stop conn
stop serve
check "RTU messages arrive" A sh -c "echo 0 >$PARAMETERS/drop_rtu"
check "the module is unloaded" zrs_unload
check "and loaded" zrs_load
check_pair "a connection by another link" xfer --sizes 1,5000,300000 --both
check "whose RTU message has arrived" wait_established 2
ktap_done
