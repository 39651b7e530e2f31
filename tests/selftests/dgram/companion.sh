#!/bin/bash
# Datagram sockets with a UDP socket inside: UDP peers, the switch to RDMA and back, multicast and
# broadcast, both ports or neither, both queues, control messages and UDP_SEGMENT beside RDMA, errors, a
# server with 1000 clients, peers without UDP; and a comparison with UDP.
# rows: Z7 E1 E4 E5 B1 B6
# debug: full
# params: dgram_stall_ms=5000
# timeout: 300
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
answer_all_icmp
for case in peers switch alone group_without_port many ports queues peeks controls told clients; do
	check_lines python3 "$(dirname "$0")/companion.py" $case
done
cases=(names connected errors cmsgs)
[ "${TIER:-ci}" = full ] && cases=()
check_lines python3 "$(dirname "$0")/compare.py" --udp "${cases[@]}"
check_lines python3 "$(dirname "$0")/calls.py" --udp handed namespaces mapped privileged ranges stamps late
ktap_done
