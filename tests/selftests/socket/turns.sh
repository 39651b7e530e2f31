#!/bin/bash
# Two programs that read one socket: a non-blocking read after poll() has said IN gets bytes, also while the other
# peeks at them, over TCP and over ZRS.
# rows: Z1 E4
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
check_lines B python3 "$(dirname "$0")/turns.py"
ktap_done
