#!/bin/bash
# Settings of a network namespace: zrs set --net and /proc/sys/net/zrs, who may write them, and that
# sockets of that namespace go by them; parameters that take effect while the module is loaded.
# rows: B13 B9
# debug: full
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
sysctl=/proc/sys/net/zrs
in_a() { A cat "$sysctl/$1"; }
in_b() { B cat "$sysctl/$1"; }
at_end "A sh -c 'echo never >$sysctl/tcp; echo $(in_a connect_timeout_ms) >$sysctl/connect_timeout_ms; echo 250 >$sysctl/fallback_ms'"
check_eq "the files" "connect_timeout_ms enabled fallback_ms first_group last_group tcp tcp_no_new_privs " "$(A ls $sysctl | tr '\n' ' ')"
check "the machine's value" zrs set fallback_ms=300
check_eq "is that of namespaces without their own" "300 300" "$(in_a fallback_ms) $(in_b fallback_ms)"
check "zrs set --net" A zrs set --net fallback_ms=400 tcp=auto
check_eq "is the namespace's value" "400 auto" "$(in_a fallback_ms) $(in_a tcp)"
check_eq "and no other's" "300 never" "$(in_b fallback_ms) $(in_b tcp)"
check "the machine's value changes" zrs set fallback_ms=250
check_eq "and the namespace's stays" "400 250" "$(in_a fallback_ms) $(in_b fallback_ms)"
check_eq "zrs set --net lists them" "connect_timeout_ms enabled fallback_ms first_group last_group tcp tcp_no_new_privs " \
	"$(A zrs set --net --json | grep -oE '"name":"[a-z_]*"' | cut -d'"' -f4 | sort | tr '\n' ' ')"
for bad in fallback_ms=0 connect_timeout_ms=600001 connect_timeout_ms=x tcp=sometimes tcp=1 tcp_no_new_privs=2; do
	check_fails "--net $bad is refused" "cannot be|Invalid" A zrs set --net "$bad"
done
check_eq "and the values stay" "400 auto" "$(in_a fallback_ms) $(in_a tcp)"
check_fails "what is the machine's alone" "no setting of a network namespace" A zrs set --net pool_mib=8
check_fails "a user without the right: refused" "only root|denied" A setpriv --reuid 1000 --clear-groups zrs set --net tcp=never

# The sockets of A have TCP beside ZRS, those of B not.
start server B "listening on" zrs-selftest serve "$ADDR_B:7000" || ktap_bail "serve"
tcp_option=$(sed -n 's/^#define ZRS_TCP[ \t]*\([0-9]*\).*/\1/p' /zrs/uapi/linux/zrs.h)
sol=$(sed -n 's/^#define SOL_ZRS[ \t]*\([0-9a-fx]*\).*/\1/p' /zrs/uapi/linux/zrs.h)
mode() { "$1" python3 -c "import socket
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 253)
print(int.from_bytes(s.getsockopt($sol, $tcp_option, 4), 'little'))"; }
check_eq "the mode of new sockets: auto in A, never in B" "1 0" "$(mode A) $(mode B)"

# Tasks with no_new_privs: in A alone they may have TCP beside ZRS.
may() { "$1" setpriv --no-new-privs python3 -c "import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 253)
try:
    s.setsockopt($sol, $tcp_option, 1)
    print('yes')
except PermissionError:
    print('no')"; }
check "zrs set --net tcp_no_new_privs=1" A zrs set --net tcp_no_new_privs=1
check_eq "tcp_no_new_privs: A has it, B does not" "yes no" "$(may A) $(may B)"
check "the machine's value" zrs set tcp_no_new_privs=1
check "A's own value" A zrs set --net tcp_no_new_privs=0
check_eq "tcp_no_new_privs: B goes by the machine's, A does not" "no yes" "$(may A) $(may B)"
check "the machine's value again" zrs set tcp_no_new_privs=0
# A task that has restricted itself can become the administrator of a namespace, and is still restricted.
check_eq "the administrator of a namespace alone cannot set it" "tcp" "$(unshare -rn sh -c '
	for name in tcp tcp_no_new_privs; do
		value=$(cat /proc/sys/net/zrs/$name)
		{ echo "$value" >/proc/sys/net/zrs/$name; } 2>/dev/null && echo $name
	done')"

# Heartbeats, of a link that is there.
A zrs set --net tcp=never
start idle A waiting zrs-selftest lost "$ADDR_B:7000" || ktap_bail "an idle connection"
sent=$(counter work_requests)
check "heartbeats begin" zrs set heartbeat_ms=200
for _ in $(seq 1 $((20 * PATIENCE))); do
	nap 0.5
	[ $(($(counter work_requests) - sent)) -lt 3 ] || break
done
check "on a link that is up" [ $(($(counter work_requests) - sent)) -ge 3 ]
stop idle
check "back" zrs set heartbeat_ms=10000
stop server
check "the module goes" zrs_unload
check "and its files" A test ! -e $sysctl
check "and comes back" zrs_load
check_eq "with the machine's values" "250 never" "$(in_a fallback_ms) $(in_a tcp)"
ktap_done
