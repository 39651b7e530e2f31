#!/bin/bash
# Shares of the table of channels: a user's, a network namespace's; users without a share; returned
# shares; with TCP beside ZRS a user over its share has TCP.
# rows: B11 B19
# params: max_channels=64 user_percent=25 net_percent=50
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start

# fill NAME HOST UID TEXT ARGS...: checks that it says just that.
fill() {
	local name=$1 host=$2 uid=$3 text=$4
	shift 4
	start "$name" "$host" "" setpriv --reuid "$uid" --clear-groups zrs-selftest fill "$@"
	says "$name" opened && { grep -x "$text" "$TMP/$name" || { cat "$TMP/$name"; return 1; }; }
}
# left N: there are N channels, or will be in a moment.
left() {
	local _ now
	for _ in $(seq 1 $((150 * PATIENCE))); do
		now=$(counter channels)
		[ "$now" != "$1" ] || return 0
		nap 0.1
	done
	echo "$now channels"
	return 1
}

start listener B "opened 0" zrs-selftest fill --listen "$ADDR_B:7000" || ktap_bail "a listener"
check "a user gets a quarter of the table, then EDQUOT" fill nobody A 65534 "opened 16, then connect: EDQUOT" \
	--connect "$ADDR_B:7000" --conns 20
check "another user gets what it asks for" fill other A 1234 "opened 4" --connect "$ADDR_B:7000" --conns 4
check "root as well" fill root A 0 "opened 4" --connect "$ADDR_B:7000" --conns 4
# A server of TCP: a user with a share left learns that no program listens there with ZRS.
start web B listening python3 -c '
import socket, sys, time
with socket.create_server((sys.argv[1], 7005)):
    print("listening", flush=True)
    time.sleep(1000)' "$ADDR_B" || ktap_bail "a server of TCP"
# beside UID: how a socket with TCP beside ZRS connects to it.
beside() { A setpriv --reuid "$1" --clear-groups python3 "$(dirname "$0")/../tcp/connect.py" how "$ADDR_B" 7005; }
check_eq "with TCP beside ZRS the first user gets TCP, NO_RESOURCES" "no error 2 8" "$(beside 65534)"
check_eq "another user asks the server" "no error 2 7" "$(beside 1234)"
stop web
stop nobody
stop listener
stop other
stop root
check "all is given back" left 0

start listener B "opened 0" zrs-selftest fill --listen "$ADDR_B:7001" || ktap_bail "a listener"
check "the user has its share again" fill nobody A 65534 "opened 16, then connect: EDQUOT" \
	--connect "$ADDR_B:7001" --conns 20
check "root gets what is left of half the table for the namespace" fill root A 0 "opened 16, then connect: EDQUOT" \
	--connect "$ADDR_B:7001" --conns 20
stop nobody
stop root
stop listener
check "given back" left 0

# Shares that change while there are connections.
start listener B "opened 0" zrs-selftest fill --listen "$ADDR_B:7004" || ktap_bail "a listener"
zrs set user_percent=50
check "a half of the table, after zrs set" fill nobody A 65534 "opened 31, then connect: EDQUOT" \
	--connect "$ADDR_B:7004" --conns 40
zrs set user_percent=25
check "over the share that is smaller now: none" fill more A 65534 "opened 0, then connect: EDQUOT" \
	--connect "$ADDR_B:7004" --conns 4
stop nobody
stop more
stop listener
check "given back, again" left 0

start roots B "opened 0" zrs-selftest fill --listen "$ADDR_B:7003" || ktap_bail "root's listener"
check "a user's listener" fill listener B 65534 "opened 0" --listen "$ADDR_B:7002"
check "over its owner's share a listener takes none: ENOBUFS" fill many A 0 "opened 16, then connect: ENOBUFS" \
	--connect "$ADDR_B:7002" --conns 20
check "another one does" fill few A 0 "opened 4" --connect "$ADDR_B:7003" --conns 4
stop many
stop listener
stop few
stop roots
check "given back at the end" left 0
ktap_done
