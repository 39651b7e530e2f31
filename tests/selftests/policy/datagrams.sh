#!/bin/bash
# BPF programs of a control group and datagrams: bind(), connect(), sendto(), recvfrom(), the packets out and
# in. Each is compared with UDP, for sockets of ZRS alone and for those with a UDP socket inside, by RDMA too.
# rows: B16 Z7
# params: dgram_stall_ms=5000
# debug: full
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
grep -qw __cgroup_bpf_run_filter_sk /proc/kallsyms || {
	ktap_skip "BPF programs of control groups" "this kernel has none"
	ktap_done
}
group=/sys/fs/cgroup/zrs-datagrams
mkdir $group || ktap_bail "the control group"
at_end "rmdir $group"
check_lines /run/netns-exec zrsB python3 "$(dirname "$0")/datagrams.py" $group
ktap_done
