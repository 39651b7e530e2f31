#!/bin/bash
# Every option of SOL_SOCKET, IPPROTO_TCP and IPPROTO_IP beside TCP's in the same machine.
# rows: Z1 B6
# debug: full
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
check_lines A zrs-selftest sockopts --local "$ADDR_A"
ktap_done
