#!/bin/bash
# Heartbeats: they keep an idle link up, and end it when the peer does not answer or is cut off; a
# link without channels ends in its time.
# debug: full
# rows: B12 B4 E5
# hosts: none
# params: connect_timeout_ms=5000 heartbeat_ms=500 dead_ms=5000 ack_timeout_ms=1000 retry_count=3 link_idle_ms=300
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../../lib/hostile.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
hostile_up || ktap_bail "three hosts on a bridge"
# within TEXT CMD...: it succeeds in the end.
within() {
	local text=$1 end=$((SECONDS + 20 * PATIENCE))
	shift
	until "$@" || [ "$SECONDS" -ge "$end" ]; do nap 0.1; done
	check "$text" "$@"
}
# accepted ADDR: whether B has a link that ADDR has made.
accepted() { B zrs links --json | tr '{}' '\n' | grep '"accepted":true' | grep -q "\"remote\":\"$1\""; }
not_accepted() { ! accepted "$1"; }
lives() { kill -0 "${PID[$1]}" 2>/dev/null; }

start serve B "listening on" zrs-selftest serve "$ADDR_B:7000" || ktap_bail "serve"
start idle A waiting zrs-selftest lost "$ADDR_B:7000" || ktap_bail "an idle connection"
sent=$(counter work_requests)
nap 8
check "for longer than dead_ms nothing happens: the connection lives" lives idle
check "as its hosts ask each other" [ $(($(counter work_requests) - sent)) -ge 4 ]

# Its device acknowledges all, and its module, if it were one, says nothing.
start mute - posed ip netns exec zrsC zrs-hostile --pose channel --port 7000 || ktap_bail "a peer that is mute"
check "a peer that does not answer has a link" accepted 10.77.0.3
within "and loses it" not_accepted 10.77.0.3
stop mute
check "others do not" lives idle
check "who answers keeps its link" accepted "$ADDR_A"

check "B is cut off" port b down
check_ended "a program that waits for nothing but the end is told" idle 20
within "B notices, too" not_accepted "$ADDR_A"
check "B is back" port b up

# Sockets in both hosts: without any, links go at once.
start other A "listening on" zrs-selftest serve "$ADDR_A:7000" || ktap_bail "serve"
check_pair "connections on a new link" xfer --sizes 1,5000
no_links() { [ "$(counter links)" = 0 ]; }
within "a link without connections ends after link_idle_ms" no_links
ktap_done
