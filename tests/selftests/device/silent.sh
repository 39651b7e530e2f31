#!/bin/bash
# A device that does not say when it is done with the receives of a queue pair that has ended: a link's teardown waits for
# it no longer than a bound, all links of a device that goes wait at the same time, and no block is lost.
# rows: B17 B9 E2
# hosts: own
# device: strict
# params: link_idle_ms=200 links_per_peer=8 link_channels=1 blocks=512 link_credit=32 connect_timeout_ms=6000
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

SILENT=/sys/module/rdma_rxe/parameters/silent
links() { A zrs links --json | jq '[.links[] | select(.device == "rxeA")] | length'; }
blocks() { zrs pool --json | jq ".pools[] | select(.device == \"rxe$1\") | .blocks"; }
cat >"$TMP/held.py" <<'PY'
import socket, sys, time
if sys.argv[1] == "listen":
    l = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 253)
    l.bind(("10.77.0.2", 7100))
    l.listen(16)
    print("listening", flush=True)
    held = []
    while True:
        held.append(l.accept()[0])
held = []
for _ in range(int(sys.argv[2])):
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 253)
    s.connect(("10.77.0.2", 7100))
    held.append(s)
    time.sleep(0.2)
print("connected", flush=True)
for s in held:
    try:
        s.recv(1)
    except OSError:
        pass
print("ended", flush=True)
PY

ktap_start
check_pair "bulk data" xfer --sizes 1,5000,300000 --both
check_becomes "the links are idle, and end" 0 links
least=$(blocks B)
echo 1 >$SILENT
at_end "echo 0 >$SILENT"
for n in 1 2 3 4 5 6; do
	check_pair "bulk data, $n" xfer --sizes 1,5000,300000 --both
	check_becomes "the links end, $n" 0 links
done
check_becomes "no block is lost, A" "$least" blocks A
check_becomes "no block is lost, B" "$least" blocks B

start listener B listening python3 "$TMP/held.py" listen || ktap_bail "a listener"
start one A connected python3 "$TMP/held.py" connect 1 || ktap_bail "a connection"
begin=$(date +%s%3N)
check "the device goes with one link" timeout $((60 * SCALE)) rdma link delete rxeA
one=$(($(date +%s%3N) - begin))
# Of a device that says it, the word comes at once.
check "whose teardown waits for the device's word ($one ms)" test "$one" -ge 1000
check "its connection ends" says one ended
check "another device" A rdma link add rxeA type rxe netdev va
start eight A connected python3 "$TMP/held.py" connect 16 || ktap_bail "connections"
# Links are added in the background, when there are connections for them.
for n in 1 2 3 4 5 6 7 8; do
	[ "$(links)" -lt 8 ] || break
	start "more$n" A connected python3 "$TMP/held.py" connect 4 || ktap_bail "more connections"
done
check_becomes "eight links" 8 links
begin=$(date +%s%3N)
check "the device goes with eight links" timeout $((60 * SCALE)) rdma link delete rxeA
eight=$(($(date +%s%3N) - begin))
check "its connections end" says eight ended
check "in less than four times the time of one link ($eight ms, $one ms)" test "$eight" -lt $((4 * one))
check "and another device" A rdma link add rxeA type rxe netdev va
echo 0 >$SILENT
check_pair "bulk data by it" xfer --sizes 1,5000,300000 --both
ktap_done
