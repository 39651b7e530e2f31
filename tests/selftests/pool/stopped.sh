#!/bin/bash
# A stopped reader and running ones, under each policy: its unread data leaves the pool if it may,
# and else stays; and every byte is right when it reads on.
# rows: C2 C3 C5 Z2 Z6 B11
# timeout: 90
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
busy=(--busy "$(less 16)")
policy() { echo "$1" >/sys/module/zrs/parameters/escape || ktap_bail "the policy $1"; }
# stopped TEXT HOW EXPECT
stopped() { check_pair "$1" stopped --how "$2" --expect "$3" "${busy[@]}"; }

policy never
stopped "never: recv()" recv stays
stopped "never: a ring" ring-escape stays
# Messages in blocks that run short are moved in any case.
check_eq "never: no window's data has escaped" "$(counter rx_spilled)" "$(cache escaped_bytes)"

policy under-pressure
# So small that a few busy readers need the room, on a slow machine too.
busy=(--busy 8)
echo 2 >/sys/module/zrs/parameters/pool_mib
stopped "under-pressure: recv()" recv leaves-for-others
stopped "under-pressure: a ring" ring-escape leaves-for-others

policy always
busy=(--busy "$(less 16)")
echo 0 >/sys/module/zrs/parameters/pool_mib
stopped "always: recv()" recv leaves
stopped "always: recv(), small messages" small leaves
stopped "always: a ring" ring-escape leaves
stopped "always: a ring that does not know of it" ring stays
# It has this time to take it.
echo 1000000 >/sys/module/zrs/parameters/residency_us
stopped "always: a ring whose reader holds the first segment" hold stays
check_eq "others have 200 us again" 200 "$(cat /sys/module/zrs/parameters/residency_us)"
check_eq "nothing was to escape and could not" 0 "$(cache escape_failures)"
check "no window is leaked" zrs_idle
ktap_done
