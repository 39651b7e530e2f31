#!/bin/bash
# Senders of datagrams that share a socket, that signals interrupt, and that SO_BINDTODEVICE binds: they wait, wake and
# fail as those of UDP do.
# hosts: none
# rows: Z7 E1 E3
# params: ack_timeout_ms=2000 retry_count=6
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../../lib/hostile.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
hostile_up || ktap_bail "hosts on a bridge"
check_lines python3 "$(dirname "$0")/senders.py" others \
	"bridge -n zrsL link set dev lb state 0" "bridge -n zrsL link set dev lb state 3"
check "the module can go" zrs_unload
ktap_done
