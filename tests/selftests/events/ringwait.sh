#!/bin/bash
# Waiting for the receive ring: for data, several segments, a limit of time, signals, the end.
# rows: B3 Z5 E2 E3
# machines: any
# timeout: 60
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
start serve B "listening on" zrs-selftest serve "$ADDR_B:7000" || ktap_bail "serve"
check_lines A zrs-selftest ringwait --peer "$ADDR_B:7000"
ktap_done
