#!/bin/bash
# Source ports of links are shared: a user who connects to six hundred hosts that do not answer gets most of a
# namespace's 512, and another user and the administrator still connect, and move a file, while the storm goes on.
# rows: B19 E5
# hosts: own
# params: connect_timeout_ms=60000 max_channels=4096
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

cat >"$TMP/storm.py" <<'PY'
import select, socket, time
kept, waiting = [], select.poll()
for n in range(600):
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 253)
    s.setblocking(False)
    s.connect_ex((f"10.77.{4 + n // 200}.{1 + n % 200}", 7000))
    waiting.register(s, select.POLLOUT)
    kept.append(s)
    if n % 50 == 49:
        time.sleep(0.2)
time.sleep(1)
print("waiting", len(kept) - len(waiting.poll(0)), "of", len(kept), flush=True)
time.sleep(600)
PY
cat >"$TMP/file.py" <<'PY'
import hashlib, socket, sys, time
began = time.monotonic()
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 253)
s.connect((sys.argv[1], 7000))
data = bytes(range(256)) * 4096
s.sendall(data)
s.shutdown(socket.SHUT_WR)
right = s.recv(64) == hashlib.sha256(data).digest()
took = time.monotonic() - began
print("right" if right else "wrong", "in", round(took, 2), "s")
sys.exit(not right or took > 8 * float(sys.argv[2]))
PY
cat >"$TMP/server.py" <<'PY'
import hashlib, socket
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 253)
s.bind(("0.0.0.0", 7000))
s.listen(8)
print("listening", flush=True)
while True:
    c, _ = s.accept()
    digest = hashlib.sha256()
    while part := c.recv(1 << 18):
        digest.update(part)
    c.send(digest.digest())
    c.close()
PY
chmod 755 "$TMP" && chmod 644 "$TMP"/*.py
# file UID ADDR: this user of A sends B a file.
file() { A setpriv --reuid "$1" --clear-groups python3 "$TMP/file.py" "$2" "$((TIME_SCALE * LIMIT_SCALE))"; }

ktap_start
ip -n zrsA addr add 10.77.4.250/16 dev va
ip -n zrsB addr add 10.77.0.22/24 dev vb
for net in 4 5 6; do
	for n in $(seq 1 200); do echo "neigh add 10.77.$net.$n lladdr 02:00:00:00:77:01 dev va nud permanent"; done
done | ip -n zrsA -batch - || ktap_bail "neighbours"
start server B listening python3 "$TMP/server.py" || ktap_bail "the server"
start storm A "of 600" setpriv --reuid 65534 --clear-groups python3 "$TMP/storm.py" || ktap_bail "the storm"
cat "$TMP/storm"
waiting=$(sed -n 's/^waiting \([0-9]*\).*/\1/p' "$TMP/storm")
check "a user gets four fifths of the ports at most ($waiting)" [ "$waiting" -ge 200 -a "$waiting" -le 384 ]
check "another user moves a file" file 1234 "$ADDR_B"
check "and so does root" file 0 10.77.0.22
stop storm
# Its links end when nobody waits for them any more.
again() {
	local _
	for _ in $(seq 30); do file 65534 "$ADDR_B" && return; nap 1; done
	return 1
}
check "then the user does" again
ktap_done
