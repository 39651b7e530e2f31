#!/bin/bash
# One side is killed: the other one gets the data that had arrived, then the end or an error;
# nothing hangs.
# rows: B9 E4 E5 Z4 Z6 L5
# machines: any
# timeout: 90
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
port=7000
# killed TEXT WHICH RECEIVER-ARGS SENDER-ARGS EXPECTED-RECEIVER EXPECTED-SENDER
pair() {
	port=$((port + 1))
	# shellcheck disable=SC2086 # lists
	start receiver B "listening on" zrs-selftest stream-recv --listen "$ADDR_B:$port" $1 &&
		start sender A sending zrs-selftest stream-send "$ADDR_B:$port" $2 &&
		says receiver receiving
}
for how in "" --ring --mapped; do
	pair "--expect eof --at-least 256k $how" "--expect eof" || ktap_bail "traffic"
	sleep 0.3
	stop sender
	check_ended "sender killed: the receiver $how gets what arrived, then the end" receiver
	ktap_say "$(grep '^# received' "$TMP/receiver")"

	pair "--expect eof $how" "--expect epipe,reset" || ktap_bail "traffic"
	sleep 0.3
	stop receiver
	check_ended "receiver $how killed: EPIPE or ECONNRESET for the sender" sender
	ktap_say "$(grep '^# sent' "$TMP/sender")"

	pair "--expect eof --stall $how" "--expect epipe,reset" || ktap_bail "traffic"
	sleep 0.3
	stop receiver
	check_ended "receiver $how that does not read killed: the same" sender
done

pair "--expect eof" "--expect eof --chunk 1000" || ktap_bail "traffic"
sleep 0.3
stop sender
check_ended "sender of small pieces killed: the end" receiver

# The sender waits for room when it is killed; its sent data is still there.
pair "--expect eof --at-least 512k" "--expect eof" || ktap_bail "traffic"
signal receiver STOP
nap 3
stop sender
signal receiver CONT
check_ended "sender killed while it waits for room: the receiver gets what arrived" receiver
ktap_say "$(grep '^# received' "$TMP/receiver")"

# Nobody accepts the connection before the listener is killed.
start listener B holding zrs-selftest hold --what listen --addr "$ADDR_B:7900"
start sender A sending zrs-selftest stream-send "$ADDR_B:7900" --expect epipe,reset --chunk 100 || ktap_bail "sender"
sleep 0.3
stop listener
check_ended "listener killed before accept(): the same" sender
check "no page stays pinned" unpinned
ktap_done
