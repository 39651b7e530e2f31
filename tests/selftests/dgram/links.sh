#!/bin/bash
# A program sends datagrams to many addresses: it makes the links that its user's quota allows, and other
# users can go on.
# rows: Z7 B11 B19
# machines: any
# timeout: 180
# params: dgram_links=10 user_percent=50 net_percent=100
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
check_lines A python3 /zrs/tests/selftests/dgram/links.py ${ZRS_MACHINES:+first}
ktap_done
