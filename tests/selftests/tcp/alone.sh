#!/bin/bash
# Programs that measure and test ZRS never use TCP in its place: `zrs bench`, ping, send and recv and the
# helper program of the tests, where sockets have TCP beside ZRS by default and the rules say TCP.
# rows: B14
# params: connect_timeout_ms=6000
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
at_end "for h in A B; do \$h zrs rules flush; \$h zrs set --net tcp=never; done"
for h in A B; do
	$h zrs set --net tcp=auto && $h zrs rules add tcp any || ktap_bail "mode AUTO and a rule"
done
# carried: the sockets that TCP carried so far, by reason.
carried() { zrs stats --json | grep -o '"by_why":{[^}]*}'; }

start web B "" python3 -m http.server 7800
for _ in $(seq 1 $((200 * PATIENCE))); do
	A curl -s --max-time 5 "http://$ADDR_B:7800/" >/dev/null && break
	nap 0.1
done
by() { A python3 -c "import socket, struct
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 253)
s.connect(('$ADDR_B', 7800))
print(*struct.unpack_from('II', s.getsockopt(0x5A52, 2, 256), 112))"; }
check_eq "other programs' sockets are TCP, by the rule" "2 9" "$(by)"

before=$(carried)
check_fails "zrs ping, to a server of TCP: it is refused" "refused" A zrs ping -c 1 "$ADDR_B:7800"
start ping B "listening on" zrs ping --listen "$ADDR_B:7801" || ktap_bail "ping --listen"
check "zrs ping" A zrs ping -c 2 -i 0.01 "$ADDR_B:7801"
head -c 100000 /dev/urandom >"$TMP/sent"
start recv B "listening on" zrs recv --listen "$ADDR_B:7802" --output "$TMP/received" || ktap_bail "recv"
check "zrs send" A zrs send "$TMP/sent" "$ADDR_B:7802"
check_ended "zrs recv" recv
start bench B "listening on" zrs bench --server "$ADDR_B:7803" || ktap_bail "bench --server"
check "zrs bench" A zrs bench --client "$ADDR_B:7803" --rounds 1 --only latency,connect --carriers zrs,zrs-ring --sizes 64 --messages 5
check_pair "the tests' own program" xfer --sizes 1,100k --both
check_eq "TCP carried none of them" "$before" "$(carried)"
ktap_done
