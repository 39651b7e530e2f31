#!/bin/bash
# More links than the device has blocks end in the middle of a message, one after the other, while
# another link stays: no block of the receive queues is lost, and none of the links waits for one.
# hosts: none
# rows: B17 E2 B9
# debug: full
# params: blocks=192 link_credit=32 connect_timeout_ms=5000
# timeout: 240
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/hostile.sh"

# Messages that found no receive, at B.
rnr() { cat /sys/class/infiniband/rxeB/ports/1/hw_counters/send_rnr_err; }
links() { B zrs links --json | jq '[.links[] | select(.device == "rxeB")] | length'; }
# pool FIELD: of B's device.
pool() { zrs pool --json | tr '{}' '\n' | grep '"device":"rxeB"' | sed "s/.*\"$1\":\([0-9]*\).*/\1/"; }

ktap_start
hostile_up || ktap_bail "three hosts on a bridge"
before=$(rnr)
hostile named/half-messages
check_eq "messages that found no receive" "$before" "$(rnr)"
# A shared queue keeps blocks that may be lost in it, and those of links that have ended, while it is used. Without links it
# is replaced, if any may be lost; and each message that arrives takes away one that is there too many. So afterwards no more
# are in use than the blocks of one link, and 32 spare ones of the shared queue, if there is one.
check "the device of the bystander goes" rdma link delete rxeA
check_becomes "no link is left" 0 links
check "and another one comes" A rdma link add rxeA type rxe netdev va
# A link ends soon after the last socket of its namespace, so each end has one until the blocks are counted.
start heldA A holding zrs-selftest hold --what listen --addr 0.0.0.0:7800 || ktap_bail "a socket of A"
start heldB B holding zrs-selftest hold --what listen --addr 0.0.0.0:7800 || ktap_bail "a socket of B"
check_pair "small messages by one link" pingpong --conns 1 --rounds 200 --most 100
check_eq "by one link" 1 "$(links)"
most=32
[ -z "$(rdma resource show srq | grep "dev rxeB")" ] || most=64
few() { [ "$(pool blocks)" -le $most ] && echo "at most $most"; }
check_becomes "blocks in use are those of one link, and spare ones" "at most $most" few
ktap_done
