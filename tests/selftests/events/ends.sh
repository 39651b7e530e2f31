#!/bin/bash
# Each state of a connection when the peer closes and when it resets: events, and the result of each call,
# compared with TCP in the same run.
# rows: E1 E4 B3
# params: connect_timeout_ms=20000
# timeout: 600
# debug: full
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
check_lines A python3 "$(dirname "$0")/ends.py"
ktap_done
