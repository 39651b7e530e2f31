#!/bin/bash
# A socket in several hands: dup, fork, SCM_RIGHTS.
# rows: B1
# machines: any
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
start serve B "listening on" zrs-selftest serve "$ADDR_B:7000" || ktap_bail "serve"
check_lines A zrs-selftest share --peer "$ADDR_B:7000"
ktap_done
