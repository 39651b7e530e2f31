#!/bin/bash
# A peer that goes on sending, and posts no receive: the device repeats to it (RNR), and after dead_ms the
# link ends, whatever the peer sends.
# The peer, which connects, chooses how often the device repeats without an answer, Soft-RoCE's RNR included: 7 times, a second each.
# hosts: none
# rows: B9 B12 B17
# params: heartbeat_ms=500 dead_ms=4000 ack_timeout_ms=1000 retry_count=1
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/hostile.sh"

ktap_start
log_all
hostile_up || ktap_bail "three hosts on a bridge"
hostile named/takes-nothing
check "the device has repeated" sh -c "cat /sys/class/infiniband/rxe[AB]/ports/1/hw_counters/rcvd_rnr_err | grep -qvx 0"
check "the log says why the link ended" sh -c "dmesg | grep -q 'its peer takes no messages'"
check "no window is leaked" zrs_idle
ktap_done
