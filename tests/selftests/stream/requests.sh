#!/bin/bash
# The work requests that the driver gets, by a kprobe: exactly the bytes of the call, from the
# program's page frames, each contiguous run as one SGE, in as few requests as the SGE limit allows;
# copies where they are documented. The kernel's pin counters: the pages of a call while it runs or
# waits, none afterwards. No message has an address of a sender's page or of a window's.
# rows: Z3 Z4 B2
# test-module: tests/lib/postlog
# timeout: 90
# params: escape=never copy_tail_kib=0
# debug: full
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
if [ -n "${DEVICE:-}" ]; then
	ktap_skip "the requests of a call" "they depend on the limits of $DEVICE"
	ktap_done
fi
insmod /zrs/build/tests/lib/postlog/postlog.ko || ktap_bail "nothing to record with"
at_end "rmmod postlog"
echo 4 >/proc/sys/vm/nr_hugepages
at_end "echo 0 >/proc/sys/vm/nr_hugepages"
start server B "listening on" zrs-selftest requests --server "$ADDR_B:7000" || ktap_bail "the server"
check_lines A zrs-selftest requests --client "$ADDR_B:7000"
check_ended "the server" server
check "nothing is left of them" zrs_idle
ktap_done
