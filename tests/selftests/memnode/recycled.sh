#!/bin/bash
# A remote key that was revoked leaves the device a memory region that the next one is made of: kprobes
# count the regions that the RDMA core allocates. Before one of its keys would come round again, after
# 256 registrations, a region is replaced.
# rows: M5 Z8
# dma: coherent
# hosts: none
# timeout: 180
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/memnode.sh"

ktap_start
define_probes "regions of remote keys" 'allocated ib_core:ib_alloc_mr'
nodes_up || ktap_bail "three hosts and two nodes"
ROUNDS=300
region=$(A zrs mem alloc 1:1 1M) || ktap_bail "a region"
echo 1 >$TRACING/events/zrstest/enable
check_eq "reads by $ROUNDS keys, which are revoked" "right $ROUNDS" \
	"$(A python3 "$(dirname "$0")/recycled.py" "$region" $ROUNDS 2>&1)"
echo 0 >$TRACING/events/zrstest/enable
made=$(grep -c allocated: $TRACING/trace)
check "a region is used again, but not for ever ($made allocated)" test "$made" -ge 2 -a "$made" -le 4
check "the region is freed" A zrs mem free "$region"
ktap_done
