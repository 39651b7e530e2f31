#!/bin/bash
# `zrs ss`: which sockets it lists, its columns and details, the processes; for an ordinary user,
# too.
# rows: B8
# params: connect_timeout_ms=6000
# timeout: 90
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

NOBODY=(setpriv --reuid 65534 --regid 65534 --clear-groups)
cat >"$TMP/server.py" <<'PY'
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 253)
s.bind(("10.77.0.2", 7000))
s.listen(7)
print("listening", flush=True)
c, _ = s.accept()
print("accepted", flush=True)
time.sleep(1000)
PY
# The first connection has data, the second one is shut down; the third is just there.
cat >"$TMP/client.py" <<'PY'
import socket, sys, time
all = [socket.socket(socket.AF_INET, socket.SOCK_STREAM, 253) for _ in range(int(sys.argv[1]))]
for s in all:
    s.connect(("10.77.0.2", 7000))
if len(all) > 1:
    all[0].send(bytes(1000))
    all[1].shutdown(socket.SHUT_WR)
print("fds", *[s.fileno() for s in all], "ports", *[s.getsockname()[1] for s in all], flush=True)
time.sleep(1000)
PY
chmod -R a+rX "$TMP"

# squeezed CMD...: its output, with one space for many.
squeezed() { "$@" | tr -s ' ' | sed 's/ $//'; }
# line_of PORT CMD...: the line with that port of ours or of the peer's, squeezed.
line_of() {
	local port=$1
	shift
	squeezed "$@" | grep -E "(^|[ :])[0-9.]+:$port( |$)" | head -1
}
# until_eq TEXT EXPECTED CMD...: the command says that in the end.
until_eq() {
	local text=$1 expected=$2 got _
	shift 2
	for _ in $(seq 1 $((40 * PATIENCE))); do
		got=$("$@")
		[ "$got" != "$expected" ] || break
		nap 0.25
	done
	check_eq "$text" "$expected" "$got"
}

ktap_start
start server B listening python3 "$TMP/server.py" || ktap_bail "the server"
start client A fds python3 "$TMP/client.py" 3 || ktap_bail "the client"
says server accepted || ktap_bail "accept()"
read -r _ fd1 _ fd3 _ p1 p2 p3 <"$TMP/client"
pid=${PID[client]}

check_eq "by default no listener is listed" "" "$(B zrs ss | grep LISTEN)"
check_eq "its connections are" 3 "$(B zrs ss -H | wc -l)"
until_eq "a listening socket: who waits, how many may, its address" \
	"LISTEN 2 7 10.77.0.2:7000 0.0.0.0:*" squeezed B zrs ss -Htln
check_eq "-a: all of them" 4 "$(B zrs ss -Ha | wc -l)"
check_eq "the headings are those of ss(8)" \
	"State Recv-Q Send-Q Local Address:Port Peer Address:Port Process" "$(squeezed A zrs ss -p | head -1)"
check_eq "a connection" "ESTAB 0 0 10.77.0.1:$p3 10.77.0.2:7000" "$(line_of "$p3" A zrs ss)"
until_eq "what has arrived and was not read" \
	"ESTAB 1000 0 10.77.0.2:7000 10.77.0.1:$p1" line_of "$p1" B zrs ss
until_eq "one that is shut down" "CLOSING 0 0 10.77.0.1:$p2 10.77.0.2:7000" line_of "$p2" A zrs ss
check_eq "the process, by its name, number and descriptor" \
	"ESTAB 0 0 10.77.0.1:$p3 10.77.0.2:7000 users:((\"python3\",pid=$pid,fd=$fd3))" \
	"$(line_of "$p3" A zrs ss -p)"
check_eq "one that waits for accept() has none" "" "$(B zrs ss -Hp | grep "10.77.0.1:$p3 " | grep users)"

# field JSON NAME: of the first object that has it.
field() { tr '{}' '\n\n' | tr ',' '\n' | sed -n "s/^\"$1\":\"\{0,1\}\([^\"]*\)\"\{0,1\}$/\1/p" | head -1; }
link=$(A zrs links --json | field id)
inode=$(readlink "/proc/$pid/fd/$fd3" | tr -dc 0-9)
check "a link has a number" [ "${link:-0}" -gt 0 ]
details=$(line_of "$p3" A zrs ss -e)
check_eq "user, inode and link" "uid:0 ino:$inode link:$link" \
	"$(sed -n 's/.*\(uid:[0-9]*\) \(ino:[0-9]*\) chan:[1-9][0-9]* \(link:[0-9]*\) carrier:zrs$/\1 \2 \3/p' <<<"$details")"
check_eq "bytes" 1 "$(A zrs ss -Hi | grep -c $'^\tbytes_sent:1000 copied_sent:1000 bytes_received:0 ')"
check_eq "JSON has the same" "ESTAB 1000 $link python3 $fd1" "$(A zrs ss -p --json |
	jq -r '.[] | select(.tx_bytes == 1000) |
		"\(.state) \(.tx_copied) \(.link) \(.processes[0].name) \(.processes[0].fd)"')"

start mine A fds "${NOBODY[@]}" python3 "$TMP/client.py" 1 || ktap_bail "an ordinary user's client"
read -r _ fd _ port <"$TMP/mine"
check_eq "an ordinary user sees its own socket, and that it is its own" \
	"ESTAB 0 0 10.77.0.1:$port 10.77.0.2:7000 users:((\"python3\",pid=${PID[mine]},fd=$fd)) uid:65534" \
	"$(line_of "$port" A "${NOBODY[@]}" zrs ss -pe | sed 's/ ino:.*//')"
check_eq "and those of others, but not whose they are" "ESTAB 0 0 10.77.0.1:$p3 10.77.0.2:7000" \
	"$(line_of "$p3" A "${NOBODY[@]}" zrs ss -p)"
check_eq "nothing of another network namespace" 0 "$(zrs ss -Ha | wc -l)"
for name in mine client server; do stop $name; done
until_eq "when all are closed there is none" 0 sh -c 'ip netns exec zrsA zrs ss -Ha | wc -l'
ktap_done
