#!/bin/bash
# More connections with bulk data than windows: an unused window goes to a waiting connection, and
# its former owner gets another when it needs one. Rings have their share only.
# rows: Z2 Z3 C3
# machines: any
# timeout: 90
# params: pool_mib=1 window_kib=64
# debug: full
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
before=$(counter windows_revoked)
pause=$((250 * SCALE))
check_pair "12 connections in turn, each with a window" windows --pause "$pause"
after=$(counter windows_revoked)
ktap_say "$((after - before)) windows were asked back"
check "windows were asked back" [ "$((after - before))" -gt 12 ]
# A window that a ring shows stays with it.
start server B "listening on" zrs-selftest windows --rings --pause "$pause" --server "$ADDR_B:7100" || ktap_bail "server"
check "12 connections in turn, some with rings" A zrs-selftest windows --pause "$pause" --client "$ADDR_B:7100"
check_ended "rings leave windows to others" server
check "no window is leaked" zrs_idle
ktap_done
