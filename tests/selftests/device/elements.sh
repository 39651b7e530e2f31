#!/bin/bash
# A device that refuses a queue pair with as many elements a request as it claims (as mlx5 may, whose elements
# and work requests share the room): ZRS asks for fewer, down to three, and data passes by what it gets. A device that
# takes none has a line in the log.
# rows: B17
# hosts: own
# device: strict
# timeout: 90
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

SGE=/sys/module/rdma_rxe/parameters/qp_sge

# Links of before have their queue pairs.
devices_anew() {
	rdma link delete rxeA && rdma link delete rxeB &&
		A rdma link add rxeA type rxe netdev va && B rdma link add rxeB type rxe netdev vb
}

ktap_start
define_probes "queue pairs" 'asked rdma_cm:rdma_create_qp'
at_end "echo 4294967295 >$SGE"
# From 32 elements on, halved: 16, 8, 4, 3.
for most in 5 3; do
	tries=$((most == 5 ? 4 : 5))
	check "$most elements: new devices" devices_anew
	echo "$most" >$SGE
	echo >$TRACING/trace
	echo 1 >$TRACING/events/zrstest/enable
	check_pair "$most elements: bulk data" xfer --sizes 1,5000,300000 --both
	echo 0 >$TRACING/events/zrstest/enable
	asked=$(grep -c "asked:" $TRACING/trace)
	check "$most elements: each end has asked until the device took it ($asked)" [ "$asked" -ge $((2 * tries)) -a $((asked % tries)) = 0 ]
done
check "2 elements: new devices" devices_anew
echo 2 >$SGE
check_lines A zrs-selftest refused "$ADDR_B:7999" --errno EHOSTUNREACH --within-ms "$((5000 * SCALE))"
check "the log says why" sh -c "dmesg | grep -q 'rxeA: no queue pair of 512 work requests: EINVAL'"
ktap_done
