#!/bin/bash
# MSG_ZEROCOPY: which calls are told of and how, that nothing is copied, and that no page stays
# pinned.
# rows: B2 Z4 B1
# machines: any
# params: copy_tail_kib=0
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
port=7000
for how in "" --ring; do
	port=$((port + 1))
	start server B "listening on" zrs-selftest zerocopy ${how:+$how} --server "$ADDR_B:$port" || ktap_bail "server"
	ktap_say "received ${how:-plain}"
	check_lines A zrs-selftest zerocopy --client "$ADDR_B:$port"
	check_ended "the server got every byte" server
done

check "no page is pinned after that" unpinned

# The sender is killed while it sends, and while it waits for room.
for how in "" --stop; do
	port=$((port + 1))
	start receiver B "listening on" zrs-selftest stream-recv --listen "$ADDR_B:$port" --expect eof --at-least 256k &&
		start sender A sending zrs-selftest stream-send "$ADDR_B:$port" --expect eof --zerocopy &&
		says receiver receiving || ktap_bail "traffic"
	[ -z "$how" ] || signal receiver STOP
	nap 0.5
	stop sender
	[ -z "$how" ] || signal receiver CONT
	check_ended "sender killed${how:+ while it waits for room}: the receiver gets what arrived" receiver
	check "and no page stays pinned" unpinned
done

# The receiver is killed: the sender gets the notifications of its calls in their order, also that of a call
# after the peer's close, and the end.
for moment in 0.1 0.3 0.4 0.5; do
	port=$((port + 1))
	start receiver B "listening on" zrs-selftest stream-recv --listen "$ADDR_B:$port" --expect eof &&
		start sender A sending zrs-selftest stream-send "$ADDR_B:$port" --expect epipe,reset --zerocopy &&
		says receiver receiving || ktap_bail "traffic"
	nap "$moment"
	stop receiver
	check_ended "receiver killed after $moment s: EPIPE or ECONNRESET for the sender" sender
done
check "and no page stays pinned" unpinned
ktap_done
