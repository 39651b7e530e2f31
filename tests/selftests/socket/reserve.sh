#!/bin/bash
# Users together leave a part of the table of channels to root, and each leaves something to the next.
# rows: B11 B19
# hosts: own
# params: max_channels=100 user_percent=80 net_percent=100 connect_timeout_ms=60000
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/silent.sh"

ktap_start
silent_up || ktap_bail "a neighbour"

check "a user gets 80 percent of 95 channels" storm 65534 76 EDQUOT
check "another one 80 percent of the rest" storm 1234 16 EDQUOT
check "and a third one something" storm 1235 3 EDQUOT
check "users have no more" storm 1236 0 EDQUOT
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
