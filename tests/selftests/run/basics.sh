#!/bin/bash
# `zrs run`: programs that know nothing of ZRS get ZRS sockets; loopback and listed addresses stay
# TCP; its log, and its exit status.
# rows: Z1 B1
# timeout: 120
# debug: full
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
here=$(dirname "$0")
# sockets HOST: "state local" of each ZRS socket there.
sockets() { "$1" zrs ss -a --json | jq -r '.[] | "\(.state) \(.local)"'; }
# listens PORT: host B has a ZRS socket that listens there.
listens() { sockets B | grep -qE "^LISTEN .*:$1\$"; }
# within CMD...: it succeeds in a moment.
within() {
	local _
	for _ in $(seq 1 $((100 * PATIENCE))); do
		"$@" && return 0
		nap 0.1
	done
	return 1
}
# decides TEXT LINE CMD...: under --verbose, with options in front, it says that line.
decides() {
	local text=$1 line=$2
	shift 2
	A zrs run --tcp=never --verbose "$@" >"$TMP/said" 2>&1
	check "$text" grep -qE "^zrs run: [^ ]*\[[0-9]+\]: $line\$" "$TMP/said"
	[ "$(grep -c "^zrs run: " "$TMP/said")" = 1 ] || ktap_fail "$text: one line"
}

# Bytes, by netcat.
head -c 3000000 /dev/urandom >"$TMP/sent"
start listen B "" zrs run --tcp=never -- sh -c "exec nc -l $ADDR_B 7000"
check "nc listens with ZRS, started by a shell" within listens 7000
A zrs run --tcp=never -- nc -N "$ADDR_B" 7000 <"$TMP/sent"
check_ended "nc ends" listen
check "3 MB are the same" cmp "$TMP/sent" "$TMP/listen"

start serve B "listening on" zrs-selftest serve "$ADDR_B:7001" || ktap_bail "serve"
check_lines A zrs run --tcp=never -- python3 "$here/sockets.py" "$ADDR_B" 7001
ktap_say "with no_new_privs:"
check_lines A setpriv --no-new-privs zrs run --tcp=never -- python3 "$here/sockets.py" "$ADDR_B" 7001 swapped

# Rules.
try=(nc -z -w 2)
decides "a line for a ZRS socket" "connect $ADDR_B:7001: ZRS" -- "${try[@]}" "$ADDR_B" 7001
decides "for loopback" "connect 127.0.0.1:9: TCP \(loopback\)" -- "${try[@]}" 127.0.0.1 9
decides "--tcp-port" "connect $ADDR_B:7001: TCP \(listed port\)" --tcp-port 22,7000-7010 -- \
	"${try[@]}" "$ADDR_B" 7001
decides "--tcp-net" "connect $ADDR_B:7001: TCP \(listed network\)" --tcp-net 10.77.0.0/16 -- \
	"${try[@]}" "$ADDR_B" 7001
decides "--only-port" "connect $ADDR_B:7001: TCP \(not a listed port\)" --only-port 7002 -- \
	"${try[@]}" "$ADDR_B" 7001
decides "--only-net" "connect $ADDR_B:7001: TCP \(not a listed network\)" --only-net 192.0.2.0/24 -- \
	"${try[@]}" "$ADDR_B" 7001
decides "--tcp-program, of a child" "socket IPv4: TCP \(listed program\)" --tcp-program nc -- \
	sh -c "nc -z -w 2 $ADDR_B 7001; true"
decides "--only-program" "socket IPv4: TCP \(not a listed program\)" --only-program python3 -- \
	"${try[@]}" "$ADDR_B" 7001
decides "--tcp-port, of a server" "bind 0.0.0.0:7500: TCP \(listed port\)" --tcp-port 7500 -- \
	python3 -c "import socket; socket.socket().bind(('0.0.0.0', 7500))"
check "a wrong network is refused" bash -c "zrs run --tcp-net 10.0.0.0/33 -- true 2>&1 | grep -q \"'33' is not a length\""
check_eq "without --verbose nothing is said" "" "$(A zrs run --tcp=never -- "${try[@]}" "$ADDR_B" 7001 2>&1 | grep 'zrs run')"
check "--log: the program is as without" A zrs run --tcp=never --log "$TMP/log" -- "${try[@]}" "$ADDR_B" 7001
check "--log" grep -q "connect $ADDR_B:7001: ZRS" "$TMP/log"

# Its own errors.
# exits STATUS TEXT CMD...
exits() {
	local rc=0 want=$1 text=$2
	shift 2
	"$@" >"$TMP/said" 2>&1 || rc=$?
	check_eq "$1 $2 ${*: -1}: exit status" "$want" "$rc"
	[ -z "$text" ] || check "and says why" grep -q "$text" "$TMP/said"
}
exits 7 "" zrs run -- sh -c 'exit 7'
exits 127 "cannot run no-such-program: no such file" zrs run -- no-such-program
exits 127 "cannot run /no/such: no such file" zrs run -- /no/such
echo >"$TMP/data"
exits 126 "cannot run $TMP/data: permission denied" zrs run -- "$TMP/data"
exits 0 "busybox is linked statically" zrs run -- busybox true
check_eq "LD_PRELOAD of others stays" 0 "$(
	LD_PRELOAD=libm.so.6 zrs run -- sh -c 'case $LD_PRELOAD in */libzrs_preload.so:libm.so.6) echo 0 ;; *) echo "$LD_PRELOAD" ;; esac'
)"
exits 2 "'sometimes' is not never, auto, required or only" zrs run --tcp=sometimes -- true
exits 125 "ZRS_PRELOAD_LIB=/no/such" env ZRS_PRELOAD_LIB=/no/such zrs run -- true
stop serve
check "rmmod" zrs_unload
exits 125 "not loaded" zrs run --tcp=never -- true
exits 0 "sockets are TCP" zrs run -- python3 -c "import socket; socket.socket()"
ktap_done
