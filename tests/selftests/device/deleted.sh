#!/bin/bash
# rdma link delete under traffic: ECONNRESET on both sides, no hang; a new device works.
# hosts: own
# rows: B9 E5 Z2 Z6
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
log_all
up() { ip netns exec "zrs$1" rdma link add "rxe$1" type rxe netdev "$2"; }
port=7000
# traffic NAME SENDER-ARGS RECEIVER-ARGS
traffic() {
	port=$((port + 1))
	# shellcheck disable=SC2086 # lists
	start "receiver$1" B "listening on" zrs-selftest stream-recv --listen "$ADDR_B:$port" --expect reset $3 &&
		start "sender$1" A sending zrs-selftest stream-send "$ADDR_B:$port" --expect reset $2 &&
		says "receiver$1" receiving
}
for which in "B vb" "A va"; do
	read -r host netdev <<<"$which"
	traffic 1 "" "" && traffic 2 "" --ring && traffic 3 "--chunk 500" "" &&
		traffic 4 "" --mapped || ktap_bail "traffic"
	start listener "$host" holding zrs-selftest hold --what listen --addr 0.0.0.0:7800 || ktap_bail "listener"
	sleep 0.5
	check "rdma link delete rxe$host under traffic" timeout $((30 * PATIENCE)) rdma link delete "rxe$host"
	check "the log says why" sh -c 'dmesg | grep -q "lost: its device goes"'
	for i in 1 2 3 4; do
		check_ended "ECONNRESET for sender $i" "sender$i"
		check_ended "what arrived, then ECONNRESET for receiver $i" "receiver$i"
	done
	# Nobody listens at either address, so that only the device is missing.
	check_lines "$host" zrs-selftest refused "$([ "$host" = A ] && echo "$ADDR_B" || echo "$ADDR_A"):7999" \
		--errno ENODEV --within-ms "$((5000 * SCALE))"
	check "a new device" up "$host" "$netdev"
	check_pair "a connection over it" xfer --sizes 1,5000,300000 --both
	check_pair "and by the ring" xfer --sizes 1,5000,300000 --both --ring
	stop listener
done
# A program that holds a mapping of the pool's memory when its device goes.
start serve B "listening on" zrs-selftest serve "$ADDR_B:7900" || ktap_bail "serve"
start map A holding zrs-selftest hold --what map --addr "$ADDR_B:7900"
check "rdma link delete rxeA with a mapped window" timeout $((30 * PATIENCE)) rdma link delete rxeA
check "the mapping's holder lives" kill -0 "${PID[map]}"
stop map
check "a new device" up A va
# Pages of the window that a program has mapped, and others in its pipe, are its own.
mkfifo "$TMP/go"
exec {go}<>"$TMP/go"
A zrs-selftest hold --what lent --addr "$ADDR_B:7900" <"$TMP/go" >"$TMP/lent" 2>&1 {go}>&- &
# shellcheck disable=SC2154 # a key
PID[lent]=$!
at_end "kill -9 $!; wait $!"
says lent holding || ktap_bail "lent pages"
check "rdma link delete rxeA with lent pages" timeout $((30 * PATIENCE)) rdma link delete rxeA
check "a new device" up A va
check_pair "a connection over it" xfer --sizes 5000,300000
exec {go}>&-
check_ended "the lent pages have what was received" lent
check_pair "a connection over it" xfer --sizes 5000,300000
ktap_done
