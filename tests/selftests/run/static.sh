#!/bin/bash
# Programs that cannot be preloaded: `zrs run --static` by seccomp, `zrs run --cgroup` and `zrs bpf` by a
# BPF program; a program that is linked statically, one that makes its own system calls; and without
# the module, TCP.
# rows: B15 B1
# timeout: 180
# debug: full
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
here=$(dirname "$0")
# listens PORT: host B has a ZRS socket that listens there.
listens() { B zrs ss -l --json | jq -e --arg p ":$1" 'any(.[]; .local | endswith($p))' >/dev/null; }
# within CMD...: it succeeds in a moment.
within() {
	local _
	for _ in $(seq 1 $((100 * PATIENCE))); do
		"$@" && return 0
		nap 0.1
	done
	return 1
}
# moves NAME PORT OPTION...: two static programs under `zrs run OPTION...` send bytes.
moves() {
	local name=$1 port=$2
	shift 2
	head -c 300000 /dev/urandom >"$TMP/sent"
	start "$name" B "" zrs run "$@" -- busybox nc -l -p "$port"
	check "$*: a static program listens with ZRS" within listens "$port"
	A zrs run "$@" -- busybox nc "$ADDR_B" "$port" <"$TMP/sent"
	check_ended "$*: it ends" "$name"
	check "$*: the bytes are the same" cmp "$TMP/sent" "$TMP/$name"
}

# By seccomp.
moves static 7600 --static
check_lines B zrs run --static -- python3 "$here/nolibc.py" zrs
check_lines B setpriv --reuid=65534 --regid=65534 --clear-groups zrs run --static --tcp=never -- python3 "$here/nolibc.py" zrs
check_eq "--static: another network namespace is left alone" 6 "$(
	B zrs run --static -- /run/netns-exec zrsA python3 -c 'import socket as s; print(s.socket().getsockopt(1, 38))'
)"
rc=0
B zrs run --static -- sh -c 'exit 7' || rc=$?
check_eq "--static: the exit status" 7 "$rc"
B zrs run --static -- sh -c 'kill -9 $$' || rc=$?
check_eq "--static: ended by a signal" 137 "$rc"
start late B "" zrs run --static -- sh -c 'sleep 600 & echo $! >"$0"; exit 3' "$TMP/late.pid"
check "--static: a program that leaves another one behind" within test -s "$TMP/late.pid"
check "--static: it waits for the last of all" sh -c "sleep 1; kill -0 ${PID[late]}"
kill "$(cat "$TMP/late.pid")"
rc=0
ended late 20 || rc=$?
check_eq "and ends then, with the program's status" 3 "$rc"
start term B "ready" zrs run --static -- sh -c 'trap "exit 9" TERM; echo ready; while :; do sleep 0.1; done'
rc=0
kill "${PID[term]}"
ended term 20 || rc=$?
check_eq "--static: a signal is handed on" 9 "$rc"
B zrs run --static -- zrs run --static -- true 2>"$TMP/said"
check "--static below itself says why not" has "$TMP/said" "cannot use it again"
B setpriv --reuid=65534 --regid=65534 --clear-groups zrs run --static --tcp=auto -- true 2>"$TMP/said"
check "--static --tcp=auto without root says why not" has "$TMP/said" "zrs set tcp_no_new_privs=1"
at_end "B zrs set --net tcp_no_new_privs=0"
check "the network namespace allows it" B zrs set --net tcp_no_new_privs=1
check_eq "--static --tcp=auto without root, then" "253 1" "$(
	B setpriv --reuid=65534 --regid=65534 --clear-groups zrs run --static --tcp=auto -- python3 -c '
import socket
s = socket.socket()
print(s.getsockopt(socket.SOL_SOCKET, socket.SO_PROTOCOL), s.getsockopt(0x5A52, 3))'
)"
check "and not any more" B zrs set --net tcp_no_new_privs=0

# By BPF.
if [ ! -e /sys/kernel/btf/vmlinux ] || ! grep -qw update_socket_protocol /proc/kallsyms; then
	ktap_skip "zrs bpf" "this kernel has no type information, or no update_socket_protocol()"
else
	B zrs run --cgroup -- true 2>"$TMP/said"
	check "--cgroup without the program says what to do" has "$TMP/said" "zrs bpf load"
	mountpoint -q /sys/fs/bpf || {
		zrs bpf load 2>"$TMP/said"
		check "zrs bpf load without its file system says what to do" has "$TMP/said" "mount -t bpf"
		mount -t bpf bpf /sys/fs/bpf || ktap_bail "bpffs"
		at_end "umount /sys/fs/bpf"
	}
	check "zrs bpf load" zrs bpf load --group daemon
	at_end "zrs bpf unload"
	check_eq "a second time" "was loaded already, and is pinned at /sys/fs/bpf/zrs" "$(zrs bpf load)"
	check_eq "its group may choose" "660 daemon" "$(stat -c '%a %G' /sys/fs/bpf/zrs/cgroups)"
	moves cgroup 7601 --cgroup
	check_lines B zrs run --cgroup -- python3 "$here/nolibc.py" zrs
	check_lines B setpriv --no-new-privs zrs run --cgroup -- python3 "$here/nolibc.py" tcp
	start both B "" zrs run --cgroup -- busybox nc -l -p 7602
	check "--cgroup: a static server" within listens 7602
	A busybox nc "$ADDR_B" 7602 <"$TMP/sent"
	check_ended "a TCP client reaches it" both
	check "the bytes are the same" cmp "$TMP/sent" "$TMP/both"
	start tcp B "" busybox nc -l -p 7603
	# Its listener is a TCP socket.
	check "a static server of TCP" within eval 'B ss -Hltn "sport = :7603" | grep -q .'
	A zrs run --cgroup -- busybox nc "$ADDR_B" 7603 <"$TMP/sent"
	check_ended "--cgroup: a static client reaches it" tcp
	check "the bytes are the same again" cmp "$TMP/sent" "$TMP/tcp"
	zrs run --cgroup -- true
	check_eq "what is left of those that have ended is removed by the next" 1 "$(zrs bpf show --json | jq '.cgroups | length')"
	group=/sys/fs/cgroup/zrs-unit
	mkdir -p $group/below
	at_end "rmdir $group/below $group"
	# One process, which looks at its sockets again and again.
	coproc LOOK { exec /run/netns-exec zrsB python3 "$here/nolibc.py"; }
	at_end "kill -9 $LOOK_PID"
	# looks zrs|tcp: its answers.
	looks() {
		local line
		echo "$1" >&"${LOOK[1]}"
		while read -ru "${LOOK[0]}" line && [ "$line" != end ]; do echo "$line"; done
	}
	check_lines looks tcp
	echo "$LOOK_PID" >$group/below/cgroup.procs
	check "zrs bpf add" zrs bpf add /zrs-unit
	check_lines looks zrs
	check "zrs bpf show" has <(zrs bpf show) "$group"
	zrs set drain=1 >/dev/null
	check_lines looks tcp
	zrs set drain=0 >/dev/null
	check_lines looks zrs
	check "zrs bpf remove" zrs bpf remove $group
	check_lines looks tcp
	check "zrs bpf add, the own" sh -c 'echo $$ >'$group'/cgroup.procs; zrs bpf add'
	check_lines looks zrs
fi

# Without the module.
check "rmmod" zrs_unload
for how in --static --cgroup; do
	rc=0
	zrs run $how -- true 2>"$TMP/said" || rc=$?
	check_eq "$how without the module: it runs" 0 "$rc"
	check "and a line says so" has "$TMP/said" "the module zrs is not loaded: true runs without ZRS"
done
protocols='import socket as s; print(s.socket().getsockopt(1, 38), s.socket(s.AF_INET6).getsockopt(1, 38))'
check_eq "--tcp=auto without the module: TCP" "6 6" "$(zrs run --tcp=auto -- python3 -c "$protocols" 2>/dev/null)"
rc=0
zrs run --tcp=required -- true 2>/dev/null || rc=$?
check_eq "--tcp=required does not run without it" 125 "$rc"
library=$(dirname "$(command -v zrs)")/libzrs_preload.so
check_eq "a program that was started with it: TCP" "6 6" "$(LD_PRELOAD=$library ZRS_RUN_TCP=auto python3 -c "$protocols")"
if [ -e /sys/fs/bpf/zrs/link ]; then
	check_lines looks tcp
	check "zrs bpf unload" zrs bpf unload
	check_eq "zrs bpf show" "not loaded" "$(zrs bpf show)"
fi
ktap_done
