#!/bin/bash
# A pool that cannot be had: socket() says ENOMEM, the log has a line, the module lives on.
# rows: Z2 B9
# debug: full
# params: pool_mib=4194304
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
lines() { dmesg | grep -c "no contiguous memory for the receive pool"; }
before=$(lines) since=$SECONDS
check_fails "socket() with a pool of 4 TiB: ENOMEM" "saw ENOMEM" A zrs-selftest hold --what socket
check_eq "one line in the log" 1 "$(($(lines) - before))"
for _ in $(seq 1 40); do A zrs-selftest hold --what socket </dev/null >/dev/null; done
n=$(($(lines) - before))
ktap_say "$n lines in the log after 41 attempts"
check "ten in five seconds at most" [ "$n" -le $((((SECONDS - since) / 5 + 1) * 10)) ]
check "/dev/zrs answers" zrs stats
check_eq "no socket" 0 "$(counter sockets)"
check_eq "no pool" 0 "$(counter pool_bytes)"
check "unloads" zrs_unload
check "loads with a pool that can be had" zrs_load
check "socket()" A zrs-selftest hold --what socket
ktap_done
