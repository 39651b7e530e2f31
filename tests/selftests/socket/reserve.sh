#!/bin/bash
# Users together leave a part of the table of channels to root, and each leaves something to the next.
# rows: B11 B19
# hosts: own
# params: max_channels=100 user_percent=80 net_percent=100 connect_timeout_ms=60000
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

# storm UID TEXT: user UID of A begins TEXT connects; the next one fails with EDQUOT.
storm() {
	start "user$1" A began setpriv --reuid "$1" --clear-groups zrs-selftest storm "$SILENT" --conns 100 &&
		{ grep -x "began $2, then connect: EDQUOT" "$TMP/user$1" || { cat "$TMP/user$1"; return 1; }; }
}

ktap_start
# The address resolves, and no host takes what is sent there.
SILENT=10.77.0.101:7000
ip -n zrsA neigh add 10.77.0.101 lladdr 02:00:00:00:77:01 dev va nud permanent || ktap_bail "a neighbour"

check "a user gets 80 percent of 95 channels" storm 65534 76
check "another one 80 percent of the rest" storm 1234 16
check "and a third one something" storm 1235 3
check "users have no more" storm 1236 0
start listener B "opened 0" zrs-selftest fill --listen "$ADDR_B:7000" || ktap_bail "a listener"
check "root has the rest" start root A "opened 2" zrs-selftest fill --connect "$ADDR_B:7000" --conns 2
stop root
stop user1234
stop user1235
stop user1236

# In a new user namespace the user has further UIDs, which have no separate shares.
start sub A ready setpriv --reuid 65534 --clear-groups unshare --user bash -c '
	echo ready
	until [ "$(cat /proc/self/uid_map)" ]; do sleep 0.1; done
	exec setpriv --reuid 1 --keep-groups zrs-selftest storm "$@"' sub "$SILENT" --conns 100
# The whole map in one write.
/usr/bin/printf '0 65534 1\n1 200000 5\n' >"/proc/${PID[sub]}/uid_map"
check "not as another number of its own either" says sub "began 0, then connect: EDQUOT"
ktap_done
