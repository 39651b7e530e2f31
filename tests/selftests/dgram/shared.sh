#!/bin/bash
# Datagrams and streams from one host to another share a link, and its RDMA resources: no datagram
# makes a queue pair or a region.
# rows: Z7 Z8 B4
# debug: full
# params: dgram_stall_ms=5000
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

MAKERS=(ib_alloc_pd=ib_core:__ib_alloc_pd create_cq=ib_core:__ib_create_cq alloc_mr=ib_core:ib_alloc_mr
	create_qp=rdma_cm:rdma_create_qp)
# made: how often each maker was called, by the kprobes; the module's count; the resources that there are.
made() {
	awk '{ print $1, $2 }' "$TRACING/kprobe_profile"
	counter resources_made
	counter links
	rdma resource show
}
calls() { awk -v name="$1" '$1 == name { print $2 }' "$TRACING/kprobe_profile"; }
# sends FROM: some hundred datagrams from that host.
sends() {
	local got
	echo "$1" >&"${SEND[1]}"
	read -ru "${SEND[0]}" got
	check_eq "datagrams from $1 arrive" "$BYTES" "$got"
}
# bytes: the number of links that A has made, and the payload bytes sent on them.
bytes() { A zrs links --json | jq -r '[.links[] | select(.accepted | not)] | "\(length) \(map(.tx_bytes) | add)"'; }
BYTES=$((95 * 100 + 5 * (100 + 4096 + 20000 + 65507)))

ktap_start
start serve B "listening on" zrs-selftest serve "$ADDR_B:7100" || ktap_bail "serve"
start stream A holding zrs-selftest hold --what conn --addr "$ADDR_B:7100" || ktap_bail "a stream"
define_probes "the calls that make resources" "${MAKERS[@]/=/ }"
echo 1 >"$TRACING/events/zrstest/enable"
coproc SEND { exec python3 "$(dirname "$0")/shared.py"; }
at_end "kill $SEND_PID"
# The first socket of a host listens for links.
read -ru "${SEND[0]}" _ || ktap_bail "the sockets"
read -r links before < <(bytes)
first=$(made)
sends A
check_eq "beside a stream they make nothing" "$first" "$(made)"
read -r more after < <(bytes)
check_eq "they go by the stream's link" "$links $((before + BYTES))" "$more $after"
ktap_say "from B, which has no stream"
sends B
check "the first one makes a link: $(calls create_qp) queue pairs" [ "$(calls create_qp)" -gt 0 ]
both=$(made)
sends B
sends A
check_eq "the others make nothing" "$both" "$(made)"
stop stream
sends A
check_eq "nor without the stream" "$both" "$(made)"
ktap_done
