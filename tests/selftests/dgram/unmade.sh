#!/bin/bash
# Blocking senders of datagrams that begin before the link is up: once it is, they wait for room, and none is lost.
# hosts: none
# rows: Z7 E1
# A busy machine holds up the receiver for longer than the 20 ms after which a sender drops.
# params: dgram_stall_ms=5000
# timeout: 60
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../../lib/hostile.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
hostile_up || ktap_bail "hosts on a bridge"
check_lines python3 "$(dirname "$0")/senders.py" unmade
check "the module can go" zrs_unload
ktap_done
