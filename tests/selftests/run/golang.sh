#!/bin/bash
# An HTTP server and client in Go, linked statically, under `zrs run --static` and `zrs run --cgroup`: clients of
# ZRS and TCP reach the server at one port, and the client reaches servers of either. make test-apps builds it.
# rows: B15 B14
# tier: full
# timeout: 240
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
web=/zrs/build/golang/web
[ -x $web ] || {
	ktap_skip "a program in Go" "it is not built: make test-apps"
	ktap_done
}
# Here the first link may take its time.
wait=$(cat /sys/module/zrs/parameters/fallback_ms)
at_end "echo $wait >/sys/module/zrs/parameters/fallback_ms"
echo 20000 >/sys/module/zrs/parameters/fallback_ms
# opened: connections that programs in A have opened by TCP.
opened() { A awk '/^Tcp: [0-9]/ { print $6 }' /proc/net/snmp; }
# got HOST WORD...: what the client says, run there with these words in front; 16 requests.
got() {
	local host=$1 at=$2
	shift 2
	"$host" "$@" $web get 16 "http://$at" 2>&1
}
# reasons: how many connections TCP has carried for each.
reasons() {
	local why
	for why in known no_zrs slow no_listener no_resources; do echo -n "$why $(counter tcp_$why) "; done
}
# tries NAME PORT OPTION...: under `zrs run OPTION...`.
tries() {
	local name=$1 port=$2 how=${*:3} before
	shift 2
	start "$name" B "serving" zrs run "$@" -- $web serve "0.0.0.0:$port" || {
		ktap_fail "$how: a server in Go"
		return
	}
	check "$how: it listens with ZRS and TCP" has <(B zrs ss -le) "carrier:zrs,tcp"
	before=$(opened)
	check_eq "$how: a client in Go gets all" "got 16" "$(got A "$ADDR_B:$port" zrs run "$@" --)"
	check_eq "$how: by ZRS" "$before" "$(opened)"
	[ "$before" = "$(opened)" ] || ktap_say "carried by TCP, by reason: $(reasons)"
	before=$(opened)
	check_eq "$how: a client of TCP" "got 16" "$(got A "$ADDR_B:$port")"
	check_eq "$how: that one by TCP" 16 $(($(opened) - before))
	check_eq "$how: its own host by loopback" "got 16" "$(got B "127.0.0.1:$port")"
	check_eq "$how: and under zrs run" "got 16" "$(got B "127.0.0.1:$port" zrs run "$@" --)"
	# zrs run --static hands the signal on.
	stop "$name" TERM
	start "$name" B "serving" $web serve "[::]:$port" || ktap_bail "a server of TCP"
	check_eq "$how: a server of TCP" "got 16" "$(got A "$ADDR_B:$port" zrs run "$@" --)"
	check_eq "$how: the same by IPv6" "got 16" "$(got A "[$ADDR6_B]:$port" zrs run "$@" --)"
	stop "$name" TERM
}

# Host B has ZRS all the while: one without any ZRS socket counts as one without ZRS, for a minute at least.
start keep B "there" python3 -uc 'import signal, socket
s = socket.socket(proto=253)
s.listen()
print("there")
signal.pause()' || ktap_bail "a ZRS socket in host B"
tries static 7650 --static
if [ ! -e /sys/kernel/btf/vmlinux ] || ! grep -qw update_socket_protocol /proc/kallsyms; then
	ktap_skip "zrs bpf" "this kernel has no type information, or no update_socket_protocol()"
	ktap_done
fi
mountpoint -q /sys/fs/bpf || {
	mount -t bpf bpf /sys/fs/bpf || ktap_bail "bpffs"
	at_end "umount /sys/fs/bpf"
}
zrs bpf load || ktap_bail "zrs bpf load"
at_end "zrs bpf unload"
tries cgroup 7651 --cgroup
ktap_done
