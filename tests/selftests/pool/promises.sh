#!/bin/bash
# Main memory for data that leaves the pool, which each connection is promised: a user has a share of it, others get
# something of what it leaves, and the last part is root's.
# rows: B11 B19
# hosts: own
# params: escape_mib=8 user_percent=80 net_percent=100 connect_timeout_ms=60000
# timeout: 60
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/silent.sh"

ktap_start
silent_up || ktap_bail "a neighbour"

# 8 MiB are 128 promises of 64 KiB. The last twentieth, six and a half, is root's.
check "a user gets four fifths of the rest" storm 65534 98 ENOBUFS
check "another one four fifths of what is left" storm 1234 19 ENOBUFS
check "and a third one something" storm 1235 4 ENOBUFS
check "users get no more" storm 1236 1 ENOBUFS
start listener B "opened 0" zrs-selftest fill --listen "$ADDR_B:7000" || ktap_bail "a listener"
check "root has the last part" start root A "opened 2" zrs-selftest fill --connect "$ADDR_B:7000" --conns 2
stop root
for user in 65534 1234 1235 1236; do stop "user$user"; done
stop listener
check "nothing is left of them" zrs_idle
check_eq "nothing stays reserved" 0 "$(cache escape_reserved)"
ktap_done
