#!/bin/bash
# The first connection to a host whose Ethernet address is not known, with the default limits of
# time: by IPv4 it is made. By IPv6 the RDMA core of the host that is connected to may miss the
# answer to its own question (testing.rst, Findings), and connect() says ETIMEDOUT, nothing else;
# soon after the connection is made.
# hosts: own
# rows: B6 E5
# debug: full
# timeout: 120
# params: link_idle_ms=200 connect_timeout_ms=1000
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ROUNDS=$(less 3)

# connect ADDRESS: its result.
connect() {
	A python3 -c '
import errno, socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
try:
    socket.socket(family, socket.SOCK_STREAM, 253).connect((sys.argv[1], 7000))
    print("connected")
except OSError as e:
    print(errno.errorcode[e.errno])' "$1"
}
# forgotten: no link is left, and no host knows the other one's Ethernet address.
forgotten() {
	local end=$((SECONDS + 20 * PATIENCE))
	until [ "$(counter links)" = 0 ]; do
		[ "$SECONDS" -lt "$end" ] || return 1
		nap 0.1
	done
	# The last message of a link may come behind that.
	until ip -n zrsA neigh flush dev va && ip -n zrsB neigh flush dev vb &&
		[ -z "$(ip -n zrsA neigh show dev va nud reachable)$(ip -n zrsB neigh show dev vb nud reachable)" ]; do
		[ "$SECONDS" -lt "$end" ] || return 1
		nap 0.1
	done
}

ktap_start
check_eq "the default limit of connect()" 1000 "$(cat /sys/module/zrs/parameters/connect_timeout_ms)"
cat >"$TMP/server.py" <<-'SERVER'
	import socket
	listener = socket.socket(socket.AF_INET6, socket.SOCK_STREAM, 253)
	listener.bind(("::", 7000))
	listener.listen(16)
	print("listening", flush=True)
	while True:
	    listener.accept()[0].close()
SERVER
start server B listening python3 "$TMP/server.py" || ktap_bail "the server"
for round in $(seq 1 "$ROUNDS"); do
	check "nothing is known of the other host, $round" forgotten
	# A busy machine makes one longer than the limit now and then: in one of several tries.
	for _ in 1 2 3 4; do
		got=$(connect "$ADDR_B")
		[ "$got" = ETIMEDOUT ] || break
		forgotten || break
	done
	check_eq "by IPv4, $round" connected "$got"
done
late=0
for round in $(seq 1 "$ROUNDS"); do
	check "nothing is known of the other host, $round" forgotten
	for attempt in 1 2 3 4 5 6; do
		got=$(connect "$ADDR6_B")
		[ "$got" = ETIMEDOUT ] || break
		late=$((late + 1))
	done
	check_eq "by IPv6, $round, at attempt $attempt" connected "$got"
done
ktap_say "by IPv6 $late attempts said ETIMEDOUT"
stop server
check "nothing is left of them" zrs_idle
ktap_done
