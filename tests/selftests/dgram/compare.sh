#!/bin/bash
# Datagram sockets beside UDP's: sizes, cut datagrams, order, names, connected sockets, errors, the
# rules of ports, shutdown, readiness, control messages, options, UDP_SEGMENT, UDP_CORK,
# the error queue; by IPv4 and IPv6. And a receiver that
# does not read, or half as fast as the sender sends: what is missing is counted, and other sockets and
# streams go on.
# rows: Z7 Z1 B1 B6 E1 E4
# debug: full
# params: dgram_stall_ms=5000 connect_timeout_ms=6000
# timeout: 300
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
answer_all_icmp
check_lines python3 "$(dirname "$0")/compare.py"
check_lines python3 "$(dirname "$0")/drops.py" overflow
check_lines python3 "$(dirname "$0")/drops.py" twice
ktap_done
