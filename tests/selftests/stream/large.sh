#!/bin/bash
# 64 MiB, plain and by the ring, both ways at once; a file of it by the command, with its hash. Less
# where everything is slow.
# rows: Z3 Z4 Z5 Z6 B3 B13
# debug: full
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
size=$(less 64)M
check_pair "$size both ways, plain" xfer --sizes "$size" --both --align 7
check_pair "$size both ways, by the ring" xfer --sizes "$size" --both --ring
head -c "$size" /dev/urandom >"$TMP/file"
start recv B "listening on" zrs recv --listen "$ADDR_B:7100" --output "$TMP/copy" || ktap_bail "zrs recv"
check "zrs send of $size" A zrs send "$TMP/file" "$ADDR_B:7100"
check_ended "zrs recv" recv
check "the same bytes at the other end" cmp "$TMP/file" "$TMP/copy"
check_eq "the same hash" "$(sha256sum <"$TMP/file")" "$(sha256sum <"$TMP/copy")"
ktap_done
