#!/bin/bash
# The properties that comparisons of such systems use (testing.rst): a test for each row, with the
# row's name. Rows that are a matter of socket calls run over TCP first.
# rows: Z1 Z4 Z6 E1 L3 C2 B1 B2 B3 B4 B6
# params: escape=never table_sweep_ms=500 copy_tail_kib=0
# timeout: 120
# debug: full
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
rows() { A zrs-selftest --limit $((100 * SCALE)) "$@" compare --local "$ADDR_A" --v6 "$ADDR6_A" --each $((40 * SCALE)); }
rows --protocol 6 >"$TMP/tcp" 2>&1 || show tcp
check_eq "over TCP, the test being right: rows" 14 "$(grep -c '^ok - ' "$TMP/tcp")"
check_eq "and those that fail" 0 "$(grep -c '^not ok' "$TMP/tcp")"
check_lines rows
ktap_done
