#!/bin/bash
# RDMA resources are made with links and windows, never per message or connection: by the module's
# counter, by "rdma resource show", and by kprobes on the verbs that create resources.
# rows: Z8 B4 C6
# debug: full
# module: none
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

# The functions that create RDMA resources.
MAKERS=(ib_core:__ib_alloc_pd ib_core:__ib_create_cq ib_core:ib_create_srq_user ib_core:ib_alloc_mr
	rdma_cm:rdma_create_qp rdma_cm:__rdma_create_kernel_id)

# probed: how often each of them is called is in $TMP/tracing/kprobe_profile from now on.
probed() {
	local maker
	mkdir "$TMP/tracing" && mount -t tracefs tracefs "$TMP/tracing" || return
	at_end "echo 0 >$TMP/tracing/events/zrstest/enable; echo >$TMP/tracing/kprobe_events; umount $TMP/tracing"
	for maker in "${MAKERS[@]}"; do
		echo "p:zrstest/${maker#*:} $maker" >>"$TMP/tracing/kprobe_events" || return
	done
	echo 1 >"$TMP/tracing/events/zrstest/enable"
}
# resources: the resources of both hosts, and how often each maker was called.
resources() { bash -c "$SHOW"; }
# number KIND: the number of resources of this kind on both hosts.
number() { rdma resource show | awk -v kind="$1" '{ for (i = 3; i < NF; i++) if ($i == kind) n += $(i + 1) } END { print n + 0 }'; }
# settled: waits until links and resources are the same twice. A link of before may be going down still.
settled() {
	local before='' now _
	for _ in $(seq 1 $((40 * PATIENCE))); do
		now="$(counter links) $(rdma resource show)"
		[ "$now" != "$before" ] || return 0
		before=$now
		nap 0.5
	done
	return 1
}

ktap_start
SHOW="rdma resource show"
if [ -e /sys/kernel/tracing/kprobe_events ]; then
	probed || ktap_bail "kprobes on what makes resources"
	SHOW+="; cat $TMP/tracing/kprobe_profile"
else
	ktap_skip "the calls that make resources" "this kernel has no kprobe events"
fi
# After the probes: what the pools need is made when a device comes.
zrs_load || ktap_bail "the module"
steady=(--conns 2 --rounds "$(less 200)" --most 256k --pause-us 0 --steady --same "$SHOW")
check_pair "messages make none" pingpong "${steady[@]}"
check_pair "nor by the ring" pingpong "${steady[@]}" --ring
if [ -d "$TMP/tracing" ]; then
	for maker in "${MAKERS[@]}"; do
		calls=$(awk -v name="${maker#*:}" '$1 == name { print $2 }' "$TMP/tracing/kprobe_profile")
		check "${maker#*:} was seen: $calls calls" [ "${calls:-0}" -gt 0 ]
	done
fi
# A second connection to a known host uses the link that is there.
start serve B "listening on" zrs-selftest serve "$ADDR_B:7100" || ktap_bail "serve"
A zrs ping "$ADDR_B:7101" -c 1 >/dev/null 2>&1 # refused, and the link is there after it
start first A holding zrs-selftest hold --what conn --addr "$ADDR_B:7100"
check "nothing changes any more" settled
made=$(counter resources_made)
links=$(counter links)
before=$(resources)
start second A holding zrs-selftest hold --what conn --addr "$ADDR_B:7100"
check_eq "a second connection makes none" "$made" "$(counter resources_made)"
check_eq "and no link" "$links" "$(counter links)"
check_eq "nor in the RDMA core" "$before" "$(resources)"
# Many connections: the number of queue pairs grows with the number of links.
qps=$(number qp)
start fill B "listening on" zrs-selftest fill --listen "$ADDR_B:7200" --conns 300 || ktap_bail "the server"
start many A "opened" zrs-selftest fill --connect "$ADDR_B:7200" --conns 300 || ktap_bail "the connections"
check "300 connections are open" grep -qx "opened 300" "$TMP/many"
ktap_say "$(rdma resource show | tr '\n' ' ')"
# A link that is being made may have one, and not be counted yet.
for _ in $(seq 1 $((100 * PATIENCE))); do
	more=$(($(counter links) - links)) made=$(($(number qp) - qps))
	[ "$more" != "$made" ] || break
	nap 0.1
done
check_eq "300 connections have a queue pair for each end of a link" "$more" "$made"
per_peer=$(cat /sys/module/zrs/parameters/links_per_peer)
check "and few of these: $more more" [ "$more" -le $((2 * per_peer - links)) ]
ktap_done
