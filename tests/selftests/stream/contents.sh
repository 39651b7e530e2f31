#!/bin/bash
# The received bytes equal the sent ones: sizes from 1 byte to 4 MiB around every boundary, from any
# place in a page, by every way to send and to receive, in pieces of any length. A sample from a
# seed; with TIER=full all cases.
# debug: full
# rows: Z3 Z4 Z5 Z6 B2 B3
# machines: any
# timeout: 600
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
export LIMIT=500
cases=$(less 100)
[ "${TIER:-ci}" != full ] || cases=$(less 1000000)
[ "$SCALE" = 1 ] || [ "${TIER:-ci}" != full ] || cases=300
check_pair "$cases cases" contents --cases "$cases" --seed "${SEED:-1}"
check "no page is pinned any more" unpinned
check "no window is leaked" zrs_idle
ktap_done
