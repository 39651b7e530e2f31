#!/bin/bash
# Readiness by poll() in every state, and by epoll in all its modes.
# rows: E1 E4 L5
# machines: any
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
start serve B "listening on" zrs-selftest serve "$ADDR_B:7000" || ktap_bail "serve"
check_lines A zrs-selftest poll --peer "$ADDR_B:7000" --local "$ADDR_A" --refused "$ADDR_B:7999"
check_lines A zrs-selftest epoll --peer "$ADDR_B:7000"
ktap_done
