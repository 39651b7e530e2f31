#!/bin/bash
# The completion queues of a device's links are on its completion vectors in turn, as the kernel is
# asked for them, by a kprobe on what makes the queues; the first link of memory nodes is on the last.
# Each queue pair of a link gets an RNR timer, which is 655 ms by default.
# rows: B17 B20 L4
# module: none
# debug: full
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
# struct ib_cq_init_attr: the number of entries, then the vector.
define_probes "vectors of completion queues" \
	'made ib_core:__ib_create_cq dev=%di:x64 vector=+4(%r8):u32' \
	'rnr rdma_cm:rdma_set_min_rnr_timer code=%si:u8'
# Soft-RoCE has a vector for each processor, with the limits of another driver's device as many as tests/vm/devices says.
all=$(A ibv_devinfo -v -d rxeA | awk '$1 == "num_comp_vectors:" { print $2 }')
[ "${all:-0}" -gt 0 ] || ktap_bail "the number of completion vectors"
ktap_say "completion vectors: $all"
# vectors: what each device was asked for since the last call, in this order: "0 1 0 1".
vectors() {
	awk 'match($0, /dev=0x[0-9a-f]+/) {
		dev = substr($0, RSTART, RLENGTH)
		sub(/.* vector=/, "")
		of[dev] = of[dev] " " $0
	}
	END { for (dev in of) print substr(of[dev], 2) }' $TRACING/trace
	echo >$TRACING/trace
}
# in_turn N: the vectors of the first N links of a device.
in_turn() { seq 0 $(($1 - 1)) | awk -v all="$all" '{ printf "%s%d", (NR > 1) ? " " : "", $1 % all }'; }
at_end zrs_unload
zrs_load links_per_peer=2 link_channels=4 || ktap_bail "zrs.ko does not load"
# A socket in each host that stays, so that the links do.
start holdA A holding zrs-selftest hold --what socket || ktap_bail "hold"
start holdB B holding zrs-selftest hold --what socket || ktap_bail "hold"
echo 1 >$TRACING/events/zrstest/enable
check_pair "connections for two links" pingpong --conns 12 --rounds 5
# made N: N completion queues.
made() { [ "$(grep -c ' vector=' $TRACING/trace)" = "$1" ]; }
for _ in $(seq 1 $((100 * PATIENCE))); do ! made 4 || break; nap 0.1; done
check "two links, with a queue at each end" made 4
check_eq "each queue pair has an RNR timer of 1.28 ms" "14 14 14 14" \
	"$(sed -n 's/.* rnr: .* code=//p' $TRACING/trace | paste -sd' ')"
want=$(in_turn 2)
check_eq "those of each device are on its vectors in turn" "$want;$want" "$(vectors | paste -sd';')"
for h in A B; do
	check "memory nodes of $h" "$h" zrs mem nodes self 1
	check "the node of B" "$h" zrs mem nodes add 1:1 "$ADDR_B"
done
start node B "serving node 1:1" zrs mem serve --node 1:1 --size 8M --open || ktap_bail "serve"
check "a region, by a link of memory nodes" A zrs mem alloc 1:1 1M
check_eq "it is on the last vector of each device" "$((all - 1));$((all - 1))" "$(vectors | paste -sd';')"
stop node TERM
echo 0 >$TRACING/events/zrstest/enable
stop holdA
stop holdB
ktap_done
