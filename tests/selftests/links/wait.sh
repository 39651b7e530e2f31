#!/bin/bash
# A connection that needs another link while a device has no blocks for it: where an unused link ends to make room, the
# connect waits for its blocks, and succeeds; where all links are in use, it fails at once.
# hosts: none
# rows: C3 B4
# debug: full
# params: blocks=96 link_credit=32 connect_timeout_ms=10000 links_per_peer=1
# timeout: 180
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/hostile.sh"

ktap_start
hostile_up || ktap_bail "three hosts on a bridge"
ip -n zrsB addr add 10.77.0.5/24 dev vb || ktap_bail "a second address"
check_lines python3 "$(dirname "$0")/wait.py"
ktap_done
