#!/bin/bash
# Other ways to use datagram sockets, beside UDP's: sendmmsg() and recvmmsg(), io_uring, fork() and
# SCM_RIGHTS, two namespaces, IPv4 by sockets of IPv6, privileged ports, ranges of ports and late ports,
# times and hops of datagrams, exceptional conditions.
# rows: Z7 Z1 E1 B1 B6
# debug: full
# params: dgram_stall_ms=5000
# timeout: 180
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
answer_all_icmp
check_lines python3 "$(dirname "$0")/calls.py"
ktap_done
