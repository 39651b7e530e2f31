#!/bin/bash
# 64 MiB, plain and by the ring, both ways at once; a file of it by the command, with its hash. Less
# where everything is slow.
# rows: Z3 Z4 Z5 Z6 B3 B13
# machines: any
# debug: full
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
size=$(less 64)M
check_pair "$size both ways, plain" xfer --sizes "$size" --both --align 7
check_pair "$size both ways, by the ring" xfer --sizes "$size" --both --ring
# In files of the hosts.
sent=/tmp/zrs-sent copy=/tmp/zrs-copy
at_end "A rm -f $sent; B rm -f $copy"
A sh -c "head -c $size /dev/urandom >$sent"
start recv B "listening on" zrs recv --listen "$ADDR_B:7100" --output $copy || ktap_bail "zrs recv"
check "zrs send of $size" A zrs send $sent "$ADDR_B:7100"
check_ended "zrs recv" recv
check_eq "the same hash at the other end" "$(A sha256sum $sent | cut -d' ' -f1)" "$(B sha256sum $copy | cut -d' ' -f1)"
check_eq "of all bytes" "${size%M}" "$(B stat -c %s $copy | awk '{ print $1 / 1048576 }')"
ktap_done
