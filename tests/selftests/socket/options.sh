#!/bin/bash
# Every option of SOL_SOCKET, IPPROTO_TCP, IPPROTO_IP and IPPROTO_IPV6 compared with TCP's in the
# same machine.
# rows: Z1 B6
# debug: full
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
check_lines A zrs-selftest options --local "$ADDR_A" --local6 "$ADDR6_A"
ktap_done
