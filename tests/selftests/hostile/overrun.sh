#!/bin/bash
# A peer that does not look at its credit, on twenty links in turn: each ends, and no message of another host meets
# an empty receive queue or is repeated, as each link has its own (own_receives).
# hosts: none
# rows: B17 E2 B9
# debug: full
# params: own_receives=1 blocks=96 link_credit=32 ack_timeout_ms=16000
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/hostile.sh"

# counted HOST COUNTER: messages of that host that found no receive (rcvd_rnr_err), or were repeated (completer_retry_err).
counted() { cat "/sys/class/infiniband/rxe$1/ports/1/hw_counters/$2"; }

ktap_start
hostile_up || ktap_bail "three hosts on a bridge"
# A host that takes each message before the next one comes has a receive for all of them, and has then shown nothing.
for _ in 1 2 3 4 5; do
	hostile named/overrun
	[ "$(counted C rcvd_rnr_err)" = 0 ] || break
done
# In a shared queue of 96 they would find others' blocks.
check "its own messages found no receive" test "$(counted C rcvd_rnr_err)" -gt 0
check_eq "messages of others that found none" "0 0" "$(counted A rcvd_rnr_err) $(counted B rcvd_rnr_err)"
check_eq "messages of others that were repeated" "0 0" "$(counted A completer_retry_err) $(counted B completer_retry_err)"
ktap_done
