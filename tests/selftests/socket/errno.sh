#!/bin/bash
# The errno of every misuse of a socket, its names, options, ring and mappings; what TCP has too, over
# TCP first, which the expectations come from.
# rows: Z1 Z2 Z6 B3 B6
# machines: any
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
# reference CMD...: its results, marked as TCP's.
reference() {
	"$@" | sed 's/^\(not ok\|ok\) - /&TCP: /'
	return "${PIPESTATUS[0]}"
}
# At another port: TCP keeps its connections for a minute.
start reference B "listening on" zrs-selftest --protocol 6 serve "$ADDR_B:7090" || ktap_bail "serve by TCP"
check_lines reference A zrs-selftest --protocol 6 errno --peer "$ADDR_B:7090" --local "$ADDR_A"
stop reference
start serve B "listening on" zrs-selftest serve "$ADDR_B:7000" || ktap_bail "serve"
check_lines A zrs-selftest errno --peer "$ADDR_B:7000" --local "$ADDR_A"
ktap_done
