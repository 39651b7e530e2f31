#!/bin/bash
# A device does not deregister a window, so that the peer keeps its remote key: the link to the peer ends, the
# window's pages stay leased for ever, are counted and logged, and other connections go on; as with memory that
# a node has granted.
# hosts: own
# rows: B9 B11 M5
# debug: only
# params: pool_mib=4 window_kib=256 blocks=128 link_credit=32
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

DIR=/sys/kernel/debug/zrs
# fails PERCENT: how many deregistrations fail from now on.
fails() { echo 0 >$DIR/fail_deregister/verbose && echo 0 >$DIR/fail_deregister/space && echo -1 >$DIR/fail_deregister/times && echo "$1" >$DIR/fail_deregister/probability; }
lost() { cat $DIR/lost_bytes; }
leased() { zrs pool --json | jq "[.pools[].window_bytes] | add"; }
some_lost() { [ "$(lost)" -gt "${1:-0}" ] && echo some; }

ktap_start
log_all
mount -t debugfs debugfs /sys/kernel/debug 2>/dev/null
at_end "fails 0"
[ -d $DIR/fail_deregister ] || ktap_bail "there is no fail_deregister"
check_pair "bulk data" xfer --sizes 300000,1000000
check_becomes "all windows are the pool's again" 0 leased
check_eq "none is lost" 0 "$(lost)"

# A connection that does nothing is on the same link as the one whose window stays.
cat >"$TMP/idle.py" <<-'PY'
	import os, socket, sys
	s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 253)
	at = os.environ["ADDR_B"], 7100
	if sys.argv[1] == "listen":
	    s.bind(at)
	    s.listen()
	    print("listening", flush=True)
	    s, _ = s.accept()
	else:
	    s.connect(at)
	    print("connected", flush=True)
	try:
	    s.recv(1)
	except ConnectionResetError:
	    sys.exit(0)
	sys.exit(1)
PY
start serve B listening python3 "$TMP/idle.py" listen || ktap_bail "a server"
start idle A connected python3 "$TMP/idle.py" connect || ktap_bail "a client"
fails 100
check_pair "bulk data, while nothing is deregistered" xfer --sizes 300000,1000000
check_becomes "its windows are lost" some some_lost
check_ended "the link ends" idle
check_ended "for the other host as well" serve
fails 0
n=$(lost)
check "the log has it" sh -c "dmesg | grep -q 'rxeB: deregistering [0-9]* bytes has failed (-5): they are not used again'"
check "and why the link ended" sh -c "dmesg | grep -q 'lost: its peer keeps a remote key'"
check_pair "bulk data, as before" xfer --sizes 300000,1000000
check_pair "and many connections" pingpong --conns 8 --rounds 10 --most 300k
check_becomes "the lost pages stay leased, and no others" "$n" leased
check_eq "no more are lost" "$n" "$(lost)"

# Memory of a node.
for h in A B; do
	$h zrs mem nodes self 1 && $h zrs mem nodes add 1:1 "$ADDR_B" || ktap_bail "zrs mem nodes"
done
start node B "serving node 1:1" zrs mem serve --node 1:1 --size 4M --open || ktap_bail "a memory node"
head -c 1000000 /dev/urandom >"$TMP/file"
r=$(A zrs mem put "$TMP/file" 1:1 2>/dev/null) || ktap_bail "put"
kept=$r
# A memory region whose keys are invalid serves the next grant. The requester's host, which has no region open any more,
# ends the link after a second, with the grant.
fails 100
check_becomes "a link with a grant ends, while nothing is deregistered" some some_lost "$n"
fails 0
check_eq "its region is never free" 124 "$(timeout $((3 * PATIENCE)) /run/netns-exec zrsA zrs mem free "$kept" >/dev/null 2>&1; echo $?)"
r=$(A zrs mem put "$TMP/file" 1:1 2>/dev/null) || ktap_bail "put"
check "other regions are used" A zrs mem get "$r" "$TMP/back"
check "with their bytes" cmp "$TMP/file" "$TMP/back"
A zrs mem free "$r" || ktap_bail "free"
# The freed region of before has 245 of the node's 1024 pages for ever.
check_fails "the lost pages are given to no region" "no room" B zrs mem alloc 1:1 $(((1024 - 245 + 1) * 4))K
check "all others are" B zrs mem alloc 1:1 $(((1024 - 245) * 4))K
check_fails "and its key reads nothing" "was freed" A zrs mem get "$kept" "$TMP/none"
pins() { [ "$(pins_left)" -ge 245 ] && echo held; }
stop node
check_becomes "nor to the kernel, when the node has ended" held pins
n=$(lost)

for host in A B; do
	check "the device of $host can go" timeout $((30 * SCALE)) rdma link delete "rxe$host"
	ip netns exec "zrs$host" rdma link add "rxe$host" type rxe netdev "v${host,}" || ktap_bail "a new device"
done
check_pair "bulk data by new devices" xfer --sizes 300000,1000000
check_becomes "nothing of theirs is lost" 0 leased
check_eq "what was lost stays so" "$n" "$(lost)"
ktap_done
