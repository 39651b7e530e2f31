#!/bin/bash
# BPF programs of a control group: bind(), connect(), names, close() and the packets that open a
# connection. Each is compared with TCP, for sockets of ZRS alone and of both.
# rows: B16
# params: connect_timeout_ms=6000 fallback_ms=3000
# timeout: 120
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
check_lines /run/netns-exec zrsB python3 "$(dirname "$0")/cgroup.py" $group
ktap_done
