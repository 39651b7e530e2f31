#!/bin/bash
# The shares of a device's links: beyond its share the connects of a user get EDQUOT, or TCP; other users and
# root have further links; all users can use existing links; a share is given back.
# rows: B11 B19
# hosts: own
# params: links_per_peer=1 link_idle_ms=600000 connect_timeout_ms=6000
# timeout: 90
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
for n in $(seq 50 69); do
	ip -n zrsB addr add "10.77.0.$n/24" dev vb || ktap_bail "another address of B"
done
check_lines A python3 "$(dirname "$0")/users.py"
ktap_done
