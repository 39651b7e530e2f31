#!/bin/bash
# A user has sixteen sockets to as many addresses, as one and as two users of a user namespace; leaves unread what comes; waits in
# recv() for memory that does not come; connects to sixteen hosts that do not answer: after each, and while it lasts, another
# user connects and moves a file within two seconds, and so does root.
# rows: B19 E5 Z2
# hosts: own
# params: connect_timeout_ms=6000
# timeout: 180
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
here=$(dirname "$0") scale=$((2 * TIME_SCALE * LIMIT_SCALE))
for n in $(seq 50 65) 21 22; do echo "addr add 10.77.0.$n/24 dev vb"; done | ip -n zrsB -batch - || ktap_bail "addresses of B"
# The address resolves, and no host takes what is sent there.
for n in $(seq 101 116); do echo "neigh add 10.77.0.$n lladdr 02:00:00:00:77:01 dev va nud permanent"; done |
	ip -n zrsA -batch - || ktap_bail "neighbours"
start server B listening python3 "$here/third.py" server || ktap_bail "the server"
# file UID ADDR: this user of A sends B a file.
file() { A setpriv --reuid "$1" --clear-groups python3 "$here/third.py" file "$2" "$scale"; }
for attack in sixteen subordinate unread stalled storm; do
	start "$attack" A attacking python3 "$here/third.py" "$attack" || ktap_bail "$attack"
	count=$(sed -n 's/^attacking by \([0-9]*\) sockets/\1/p' "$TMP/$attack")
	check "$attack: by $count sockets" [ "$count" -ge 3 ]
	check "$attack: another user moves a file" file 1234 10.77.0.21
	check "$attack: root moves a file" file 0 10.77.0.22
	stop "$attack"
	pkill -f "third.py $attack"
	check "$attack: and another user behind it" file 1235 10.77.0.21
done
ktap_done
