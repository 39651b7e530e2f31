#!/bin/bash
# connect() with the fallback to TCP, in relation to TCP's in the same run: to a server with ZRS, to a host
# without (the first and later ones), to closed ports.
# rows: B14
# hosts: own
# tier: full
# debug: no
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
# Host C: only A runs Soft-RoCE on the wire between them, so that ZRS gets no answer.
export ADDR_C=10.79.0.2
at_end "rdma link delete rxeC; ip netns del zrsC"
ip netns add zrsC && ip link add vc netns zrsA type veth peer name vd netns zrsC &&
	host_up zrsA vc 10.79.0.1 rxeC && ip -n zrsC addr add "$ADDR_C/24" dev vd &&
	ip -n zrsC link set lo up && ip -n zrsC link set vd up || ktap_bail "host C"
check_lines A python3 "$(dirname "$0")/connect.py"
ktap_done
