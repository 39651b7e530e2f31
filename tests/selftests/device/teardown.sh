#!/bin/bash
# The loop of tests/hardware/teardown, which is for real NICs: senders that are killed in the middle, and a device
# that goes and comes again; it says that nothing is left, and it says what is, if something is.
# rows: B17 E5
# hosts: own
# params: heartbeat_ms=500 dead_ms=2000 link_idle_ms=3000
# timeout: 400
# tier: full
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

LOOP=$(cd "$(dirname "$0")/../../hardware" && pwd)/teardown
ktap_start
start serve B "serves at" "$LOOP" serve "$ADDR_B:7000" || ktap_bail "the server"
check "five senders that are killed" A "$LOOP" run "$ADDR_B:7000" --rounds 5
B "$LOOP" count >"$TMP/before"
# Not an interface that goes down: if the connection manager sends then, its queue pair stays in error, see
# Documentation/upstream/kernel, 06.
check "two times the device goes and comes" A "$LOOP" run "$ADDR_B:7000" --rounds 2 \
	--event "rdma link delete rxeA" --undo "rdma link add rxeA type rxe netdev va"
# What is left of a link goes when it is idle.
check_becomes "nothing is left at the receiver" "" B "$LOOP" left "$TMP/before"
cat >"$TMP/holds.py" <<'PY'
import os, socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 253)
s.bind((sys.argv[1], 7100))
s.listen()
open(sys.argv[2], "w").write(str(os.getpid()))
time.sleep(600)
PY
check_fails "with a socket more than before" "sockets" A "$LOOP" run "$ADDR_B:7000" --rounds 1 \
	--event "python3 $TMP/holds.py $ADDR_A $TMP/holds.pid >/dev/null 2>&1 &"
kill "$(cat "$TMP/holds.pid")"
check_fails "without a server" "is .teardown serve 10.77.0.2:7999. running there" A "$LOOP" run "$ADDR_B:7999"
check_fails "a mistake" "see the first lines" "$LOOP" walk "$ADDR_B:7000"
ktap_done
