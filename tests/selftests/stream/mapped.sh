#!/bin/bash
# Mapped receives (ZRS_IOC_RECV_MAP): received bytes are at the addresses that the program chose,
# and not copied above 16 KiB; they can be written to a block device by O_DIRECT and sent on; and
# the peer gets pages back when they have no user any more. The same bytes come if unread ones leave
# the window.
# debug: full
# rows: Z3 Z5 Z6 B2 B11 C5
# machines: any
# timeout: 90
# params: escape=never copy_tail_kib=0
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
device=()
# 8 MiB of memory that is a block device.
if A modprobe brd rd_nr=1 rd_size=8192 2>/dev/null && B modprobe brd rd_nr=1 rd_size=8192 2>/dev/null; then
	at_end "A rmmod brd; B rmmod brd"
	device=(--device /dev/ram0)
else
	ktap_skip "to a device by O_DIRECT" "this kernel has no block device of memory"
fi
seeds=${SEED:-1 2}
if [ "$SCALE" != 1 ] && [ "${TIER:-ci}" = ci ]; then seeds=${SEED:-1}; fi
for seed in $seeds; do
	# With a device whose chunks are shorter, the end of a message may be one of 16 KiB or less, and copied.
	check_pair "10 ways to receive, seed $seed" mapped --seed "$seed" ${DEVICE:+--escape} "${device[@]}"
done
set_param escape always || ktap_bail "the policy"
before=$(cache escaped_bytes)
check_pair "while unread bytes escape" mapped --seed 3 --escape "${device[@]}"
escaped=$(($(cache escaped_bytes) - before))
check "some did: $escaped bytes" [ "$escaped" -gt 65536 ]
check_eq "none was to escape and could not" 0 "$(cache escape_failures)"
set_param escape never || ktap_bail "the policy"
check_pair "a pipe with pages of 10 connections" hoard
check "no page is pinned any more" unpinned
check "no window is leaked" zrs_idle
ktap_done
