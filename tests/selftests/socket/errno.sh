#!/bin/bash
# The errno of every misuse of a socket, its names, options, ring and mappings.
# rows: Z1 Z2 Z6 B3 B6
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
start serve B "listening on" zrs-selftest serve "$ADDR_B:7000" || ktap_bail "serve"
check_lines A zrs-selftest sockerr --peer "$ADDR_B:7000" --local "$ADDR_A"
ktap_done
