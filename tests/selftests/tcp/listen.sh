#!/bin/bash
# TCP beside ZRS on a listener: one port for clients of both, as TCP alone has it; the modes; `zrs run
# --tcp`; and the module can go while only TCP connections are left.
# rows: B14 B1
# params: connect_timeout_ms=6000
# timeout: 180
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
here=$(dirname "$0")
# ZRS's port of the connection manager is another program's.
start rping B "" rping -s -a "$ADDR_B" -p 340
taken() {
	local _
	for _ in $(seq 1 $((100 * PATIENCE))); do
		rdma resource show cm_id 2>/dev/null | grep -q "LISTEN.*:340\b" && return 0
		nap 0.1
	done
	return 1
}
check "another program has the service port" taken
check_lines B python3 "$here/listen.py" alone
stop rping
check_lines B python3 "$here/listen.py"

# Under zrs run: python's own server, which knows nothing of it.
# fetched HOST URL: its first line.
fetched() { "$1" curl -s --max-time $((20 * PATIENCE)) "$2" | head -1; }
# serves NAME PORT OPTION...: a server in B, at the wildcard address.
serves() {
	local name=$1 port=$2
	shift 2
	start "$name" B "" zrs run "$@" -- python3 -m http.server "$port"
	for _ in $(seq 1 $((200 * PATIENCE))); do
		B zrs ss -l --json | jq -e --arg p ":$port" 'any(.[]; .local | endswith($p))' >/dev/null && return 0
		nap 0.1
	done
	return 1
}
check "a server under zrs run --tcp=auto" serves auto 7100 --tcp=auto
want="<!DOCTYPE HTML>"
check_eq "a TCP client reaches it" "$want" "$(fetched A "http://$ADDR_B:7100/")"
check_eq "a ZRS client" "$want" "$(A zrs run --tcp=never -- curl -s --max-time $((20 * PATIENCE)) "http://$ADDR_B:7100/" | head -1)"
check_eq "its own host by loopback" "$want" "$(fetched B http://127.0.0.1:7100/)"
check_eq "and by its address" "$want" "$(fetched B "http://$ADDR_B:7100/")"
check "zrs ss says that it takes both" has <(B zrs ss -le) "carrier:zrs,tcp"
check "a server under --tcp=required" serves required 7101 --tcp=required
check_eq "no TCP client reaches it" "" "$(fetched A "http://$ADDR_B:7101/")"
check_eq "a ZRS client does" "$want" "$(A zrs run --tcp=never -- curl -s --max-time $((20 * PATIENCE)) "http://$ADDR_B:7101/" | head -1)"
# Of all such sockets since the module was loaded.
without_both() { zrs stats --json | jq '.tcp.by_why."no-new-privs"'; }
before=$(without_both)
check_eq "with no_new_privs it is TCP" "bind $ADDR_B:7102: TCP (no_new_privs: no port for both)" "$(
	B setpriv --no-new-privs zrs run --tcp=auto --verbose -- \
		python3 -c "import socket; socket.socket().bind(('$ADDR_B', 7102))" 2>&1 | sed -n 's/^zrs run: [^ ]*: //p'
)"
check "which is counted" test "$(without_both)" -gt "$before"
stop auto
stop required

start hold B held python3 "$here/listen.py" hold 7200 || ktap_bail "hold"
check "rmmod while a TCP connection is left" zrs_unload
check "which lives on" kill -0 "${PID[hold]}"
ktap_done
