#!/bin/bash
# A program keeps the lock of a socket's TCP socket, by an option that is copied to memory which does not come, while its
# connect falls back to TCP: neither the end of a device nor other sockets wait for it, and it leaves nothing behind.
# rows: B14 B9
# hosts: none
# params: fallback_ms=3000 connect_timeout_ms=10000
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

# settling: a work item waits for the lock, to let TCP connect.
settling() {
	for _ in $(seq 1 $((100 * PATIENCE))); do
		cat /proc/[0-9]*/stack 2>/dev/null | grep -q '[dD]ecision.*run\|settle' && return 0
		nap 0.2
	done
	return 1
}

ktap_start
hosts_bridged || ktap_bail "three hosts on a bridge"
# Packets for this address go to B, which drops them.
read -r _ _ mac _ < <(ip -n zrsB -br link show vb)
ip -n zrsA neigh replace 10.77.0.77 lladdr "$mac" dev va || ktap_bail "a silent address"
# A link on the device that is removed later.
start serve B "listening on" zrs-selftest serve "$ADDR_B:7900" || ktap_bail "serve"
start kept A holding zrs-selftest hold --what conn --addr "$ADDR_B:7900" || ktap_bail "a connection"
start stuck A stuck python3 "$(dirname "$0")/stuck.py" 10.77.0.77 || ktap_bail "a program that is stuck"
check "a work item waits for its lock" settling
start gone - "" rdma link delete "$DEV_A"
check_ended "the end of the device does not" gone 10
check "the program is still stuck" runs "${PID[stuck]}"
check "and so is the work item" settling
stop kept
start other C holding zrs-selftest hold --what conn --addr "$ADDR_B:7900"
check "a connection by another device" runs "${PID[other]}"
stop other
stop stuck
ended gone 10
check "a new device" ip netns exec zrsA rdma link add "$DEV_A" type rxe netdev va
start again A holding zrs-selftest hold --what conn --addr "$ADDR_B:7900"
check "a connection by it" runs "${PID[again]}"
stop again
ktap_done
