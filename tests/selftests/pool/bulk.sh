#!/bin/bash
# 64 bulk senders into the smallest pool: all of them finish, every byte is right, and no more of
# the pool is ever in use than there is.
# rows: C2 C3 C5 Z2
# machines: any
# params: pool_mib=1
# timeout: 60
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
args=(--conns "$(less 64)" --limit $((55 * SCALE)))
start server B "listening on" zrs-selftest bulk --server "$ADDR_B:7000" "${args[@]}" || ktap_bail "the server"
check_lines A zrs-selftest bulk --client "$ADDR_B:7000" "${args[@]}"
check_ended "the server of them" server
check_eq "the shared queue never ran dry" 0 "$(cache dry)"
check_eq "no link was closed by an error" 0 "$(counter protocol_errors)"
check "no window is leaked" zrs_idle
ktap_done
