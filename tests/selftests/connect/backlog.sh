#!/bin/bash
# A listener whose backlog is full: connect() continues until there is room, as with TCP, or until
# its time is over, whatever happens in between; sockets that gave up leave nothing.
# hosts: own
# rows: Z1 E1 E4 E5 B9
# params: connect_timeout_ms=5000
# debug: full
# timeout: 180
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
# One waits for longer than connect_timeout_ms, the peer's time limit for an answer.
check_lines A zrs-selftest backlog --local "$ADDR_A" --waits 8000 --limit "$((150 * SCALE))"
check "nothing is left" zrs_idle

# No link ends between the parts.
start kept A holding zrs-selftest hold --what socket || ktap_bail "a socket in A"
start full B holding zrs-selftest hold --what full --addr "$ADDR_B:7000" || ktap_bail "a full backlog"
check_lines A zrs-selftest refused "$ADDR_B:7000" --errno ETIMEDOUT --syncnt 1

# entries N: the channel table has N entries. The full one has two: both ends are in this machine.
entries() { [ "$(zrs links --json | tr ',{}' '\n' | sed -n 's/^"entries"://p')" = "$1" ]; }
within() {
	local text=$1 end=$((SECONDS + 20 * PATIENCE))
	shift
	until "$@" || [ "$SECONDS" -ge "$end" ]; do nap 0.05; done
	check "$text" "$@"
}
within "their channels are gone" entries 2
for i in 1 2 3; do start "caller$i" A "" zrs-selftest refused "$ADDR_B:7000" --errno ETIMEDOUT; done
within "three wait" entries 5
for i in 1 2 3; do stop "caller$i"; done
within "killed while they wait: their channels are gone" entries 2

# The module's peer is gone while one waits that has hours: the time for an answer is over, or the
# link is.
start caller A "" zrs-selftest refused "$ADDR_B:7000" --errno ETIMEDOUT,ECONNRESET,EHOSTUNREACH,ENETUNREACH --syncnt 127
within "one waits" entries 3
check "the network is cut" ip -n zrsB link set vb down
check_ended "connect() ends" caller 60
check "it is mended" ip -n zrsB link set vb up
stop full
stop kept
check "nothing is left" zrs_idle
ktap_done
