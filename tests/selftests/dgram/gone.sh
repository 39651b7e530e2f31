#!/bin/bash
# A host that cannot be reached, and one that dies: datagrams that waited for a link are counted, and
# connected sockets have an error, once.
# hosts: none
# rows: Z7 E1 B11
# params: ack_timeout_ms=2000 retry_count=2
# timeout: 240
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../../lib/hostile.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
hostile_up && ip -n zrsA addr add "$ADDR6_A/64" dev va nodad && ip -n zrsB addr add "$ADDR6_B/64" dev vb nodad ||
	ktap_bail "hosts on a bridge"
check_lines python3 "$(dirname "$0")/drops.py" unmade
# The bridge loses the frames, so that the device in A waits for acknowledgements.
check_lines python3 "$(dirname "$0")/drops.py" gone \
	"bridge -n zrsL link set dev lb state 0" "bridge -n zrsL link set dev lb state 3"
ktap_done
