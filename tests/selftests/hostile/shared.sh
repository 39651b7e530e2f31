#!/bin/bash
# A peer that does not look at its credit, on twenty links in turn, where all links of a device share a receive queue: it
# can use up blocks that others have credit for, until its messages are looked at. Others' messages wait then, and
# all arrive; no other link ends. The device says in time that few blocks are left.
# hosts: none
# rows: B17 B9
# debug: full
# params: blocks=96 link_credit=32 ack_timeout_ms=16000
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/hostile.sh"

counted() { cat "/sys/class/infiniband/rxe$1/ports/1/hw_counters/$2"; }
# Links between the hosts A and B that have ended.
lost() { dmesg | grep -cE 'link 10\.77\.0\.[12] -> 10\.77\.0\.[12] lost' || true; }

ktap_start
log_all
define_probes "the limit of a queue" "limit ib_modify_srq srq=%di:x64"
echo 1 >$TRACING/events/zrstest/enable
limits() { grep -c limit: $TRACING/trace; }
# again: that of one queue was set more than once.
again() { grep -o 'limit: .*' $TRACING/trace | grep -o 'srq=[^ ]*' | sort | uniq -d | grep -q . && echo again; }
hostile_up || ktap_bail "three hosts on a bridge"
check_becomes "the limit of each device's queue is set" 3 limits
# A host that takes each message before the next one comes has blocks left.
for _ in 1 2 3 4 5; do
	hostile named/overrun
	[ "$(counted C rcvd_rnr_err)" = 0 ] || break
done
check_becomes "the device says that few blocks are left, and the limit is set again" again again
ktap_say "messages that met an empty queue: $(counted C rcvd_rnr_err) of the peer, $(counted A rcvd_rnr_err) and $(counted B rcvd_rnr_err) of others"
check_eq "links between others that ended" 0 "$(lost)"
check "no window is leaked" zrs_idle
ktap_done
