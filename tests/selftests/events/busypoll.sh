#!/bin/bash
# Calls that poll before they sleep: data, limits of time, signals, and others on the same link.
# rows: E3
# timeout: 60
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
start serve B "listening on" zrs-selftest serve "$ADDR_B:7000" || ktap_bail "serve"
check_lines A zrs-selftest busypoll --peer "$ADDR_B:7000"
ktap_done
