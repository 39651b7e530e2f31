#!/bin/bash
# BPF programs of a control group and memory nodes: a task that may not connect to a node's host allocates and opens no region
# there; what is open goes on.
# rows: B16 M4
# dma: coherent
# timeout: 60
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
grep -qw __cgroup_bpf_run_filter_sk /proc/kallsyms || {
	ktap_skip "BPF programs of control groups" "this kernel has none"
	ktap_done
}
group=/sys/fs/cgroup/zrs-policy
mkdir $group || ktap_bail "the control group"
at_end "rmdir $group"
start node A "serving node 1:1" zrs mem serve --node 1:1 --size 8M --open || ktap_bail "a node"
B zrs mem nodes self 1 && B zrs mem nodes add 1:1 "$ADDR_A" && B zrs mem nodes add 1:2 "$ADDR6_A" || ktap_bail "the directory"
at_end "B zrs mem nodes del 1:1; B zrs mem nodes del 1:2"
check_lines /run/netns-exec zrsB python3 "$(dirname "$0")/memory.py" $group
ktap_done
