#!/bin/bash
# /dev/zrs shows the figures of the machine to root alone; other users, root of a user namespace included, see
# the figures of their network namespace. A list of other users' sockets makes no link send.
# rows: B6 B8 B11
# params: heartbeat_ms=0 link_idle_ms=600000 connect_timeout_ms=6000 fallback_ms=3000
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
check_lines A python3 "$(dirname "$0")/namespace.py"
ktap_done
