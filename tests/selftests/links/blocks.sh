#!/bin/bash
# Links end while messages in their blocks of the shared receive queue are unread, again and again,
# with more such messages than there are blocks: the messages leave the blocks at once, and the blocks
# are there for the next links. So they do where a thread is in recv(), whose memory does not come.
# hosts: own
# rows: B9 B19 E2 Z2 C3
# debug: full
# params: blocks=128 link_credit=64 escape=never autocorking=0
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ROUNDS=6
# held: blocks of B's device with unread data.
held() { zrs pool --json | tr '{}' '\n' | grep '"device":"rxeB"' | sed 's/.*"blocks_held":\([0-9]*\).*/\1/'; }
# within CMD...: it succeeds in the end.
within() {
	local end=$((SECONDS + 20 * PATIENCE))
	until "$@"; do
		[ "$SECONDS" -lt "$end" ] || return 1
		nap 0.05
	done
}
some_held() { [ "$(held)" -ge 24 ]; }
none_held() { [ "$(held)" = 0 ]; }

ktap_start
here=$(dirname "$0") port=7000 lost=0
for round in $(seq $ROUNDS) stuck; do
	port=$((port + 1))
	case $round in
	stuck) reader=(python3 "$here/stuck.py" "$ADDR_B" "$port") ;;
	*) reader=(zrs-selftest stream-recv --listen "$ADDR_B:$port" --expect reset --stall) ;;
	esac
	start receiver B "listening on" "${reader[@]}" || ktap_bail "receiver"
	start sender A sending zrs-selftest stream-send "$ADDR_B:$port" --expect reset,epipe --chunk 700 || ktap_bail "a sender on a new link"
	within some_held || ktap_bail "messages that nobody reads"
	lost=$((lost + $(held)))
	rdma link delete rxeA || ktap_bail "the device of A does not go"
	ended sender 20 || ktap_bail "the sender's connection does not break"
	within none_held || ktap_bail "blocks are kept for data of a link that has ended"
	[ "$round" != stuck ] || check "a reader waits for its memory, and no block for it" runs "${PID[receiver]}"
	stop receiver
	ip netns exec zrsA rdma link add rxeA type rxe netdev va || ktap_bail "a new device of A"
done
check "$lost blocks had messages when their link ended: more than there are" [ "$lost" -gt 128 ]
check_pair "small messages go through the blocks" pingpong --conns 4 --rounds 50 --most 4k
check_eq "the shared queue never ran dry" 0 "$(cache dry)"
ktap_done
