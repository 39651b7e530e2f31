#!/bin/bash
# A peer that does not look at its credit, on twenty links in turn: each ends, and no message of another host meets
# an empty receive queue, as each link has its own (own_receives).
# hosts: none
# rows: B17 E2 B9
# debug: full
# params: own_receives=1 blocks=96 link_credit=32
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/hostile.sh"

# Messages of host $1 that found no receive.
refused() { cat "/sys/class/infiniband/rxe$1/ports/1/hw_counters/rcvd_rnr_err"; }

ktap_start
hostile_up || ktap_bail "three hosts on a bridge"
hostile named/overrun
# In a shared queue of 96 they would find others' blocks.
check "its own messages found no receive" test "$(refused C)" -gt 0
check_eq "messages of others that found none" "0 0" "$(refused A) $(refused B)"
ktap_done
