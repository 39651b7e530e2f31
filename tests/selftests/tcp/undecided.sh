#!/bin/bash
# A socket in mode AUTO while connect() has not decided yet between ZRS and TCP: signals, time limits, shutdown() and
# close() do what they do to a TCP socket in SYN_SENT.
# rows: B14 E5
# hosts: own
# debug: full
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
# Host C is at the end of a wire from A, and has no Soft-RoCE. Host A sends packets to two more addresses there; C does
# not have these addresses, and drops the packets.
at_end "rdma link delete rxeC; ip netns del zrsC"
ip netns add zrsC && ip link add vc netns zrsA type veth peer name vd netns zrsC &&
	host_up zrsA vc 10.79.0.1 rxeC && ip -n zrsC addr add 10.79.0.2/24 dev vd &&
	ip -n zrsC link set lo up && ip -n zrsC link set vd up || ktap_bail "host C"
read -r _ _ mac _ < <(ip -n zrsC -br link show vd)
for address in 10.79.0.77 10.79.0.78; do
	ip -n zrsA neigh replace $address lladdr "$mac" dev vc || ktap_bail "a silent address"
done
check_lines A python3 "$(dirname "$0")/undecided.py" 10.79.0.77 10.79.0.78
ktap_done
