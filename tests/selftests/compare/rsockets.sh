#!/bin/bash
# The rows of compare/rows that apply to TCP and to rsockets, with the preload library of rsockets. The
# results are printed, not judged; but each row has a result before its time limit.
# rows: Z1
# module: none
# tier: full
# debug: no
# timeout: 300
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
PRELOAD=/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so
A env LD_PRELOAD=$PRELOAD zrs-selftest --protocol 6 --limit 290 compare --preload --local "$ADDR_A" --v6 "$ADDR6_A" \
	--each $((10 * SCALE)) >"$TMP/rsockets" 2>&1
while IFS= read -r line; do ktap_say "$line"; done <"$TMP/rsockets"
check_eq "each row has an answer" 14 "$(grep -cE '^(not )?ok - ' "$TMP/rsockets")"
ktap_done
