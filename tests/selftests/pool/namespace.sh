#!/bin/bash
# A ring whose connection has no link any more: its window is of a device of the socket's network
# namespace, and without such a device there is none.
# hosts: own
# rows: B6 B11 Z3
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
check_lines A python3 "$(dirname "$0")/namespace.py"
check "no window is leaked" zrs_idle
ktap_done
