#!/bin/bash
# Connections with requests and answers, together with a bulk sender, on one link: both make
# progress, and each byte arrives. The round trip times are printed, and not judged.
# rows: B4 L3 L4 C3
# machines: any
# params: connect_timeout_ms=20000
# debug: full
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
rounds=$(less 100)
start server B "listening on" zrs-selftest --limit $((100 * SCALE)) fair --server "$ADDR_B:7000" || ktap_bail "the server"
check_lines A zrs-selftest --limit $((100 * SCALE)) fair --client "$ADDR_B:7000" --rounds "$rounds"
check_ended "the server" server
check "nothing is left of them" zrs_idle
ktap_done
