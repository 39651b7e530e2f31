#!/bin/bash
# A second connection to a known host costs one message each way, and no RDMA resource: kprobes on
# Soft-RoCE count the work requests between the beginning of connect() and its end, "rdma resource"
# the resources.
# rows: B4 Z8
# debug: full
# params: heartbeat_ms=0
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

CONNS=20
cat >"$TMP/client.py" <<'PY'
import json, os, socket, sys, time
def posted():
    with os.popen("zrs stats --json") as stats:
        return json.load(stats)["work_requests"]
def quiet():
    """Waits until what the connection before still posts is over."""
    seen = None
    while (now := posted()) != seen:
        seen = now
        time.sleep(0.05)
def connect():
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 253)
    s.connect(("10.77.0.2", 7000))
    return s
# The mark of the trace, which has no path in the network namespace.
mark = os.fdopen(3, "w", buffering=1)
conns = [connect()]
print("first", flush=True)
sys.stdin.readline()
for _ in range(int(sys.argv[1])):
    quiet()
    mark.write("connect\n")
    conns.append(connect())
    mark.write("connected\n")
print("all", flush=True)
sys.stdin.readline()
PY
# resources: the RDMA resources of each host's device, by kind.
resources() {
	local host
	for host in A B; do "$host" rdma resource show | sed 's/^[0-9]*: //; s/[a-z_]*ctx [0-9]*//g'; done
}

ktap_start
define_probes "messages of a connection" 'posted rdma_rxe:rxe_post_send qp=%di next=+0(%si):x64'
start serve B "listening on" zrs-selftest serve "$ADDR_B:7000" || ktap_bail "serve"
mkfifo "$TMP/go"
exec {go}<>"$TMP/go"
A python3 "$TMP/client.py" $CONNS <"$TMP/go" >"$TMP/client" 2>&1 {go}>&- 3>$TRACING/trace_marker &
# shellcheck disable=SC2154,SC2034 # a key; lib.sh reads it
PID[client]=$!
at_end "kill -9 $!; wait $!"
says client first || ktap_bail "the first connection"
resources >"$TMP/before"
check "they are seen" grep -q ' qp [1-9]' "$TMP/before"
echo >$TRACING/trace
echo 1 >$TRACING/events/zrstest/enable
echo >&"$go"
says client all || ktap_bail "more connections"
echo 0 >$TRACING/events/zrstest/enable
resources >"$TMP/after"
# For each connect(): requests, of them several in one post, and queue pairs that they went by.
awk '
	/: connect$/ { on = 1; posts = chains = pairs = 0; split("", seen) }
	on && /posted: / {
		posts++
		if (!/next=0x0$/) chains++
		match($0, /qp=0x[0-9a-f]+/)
		if (!(substr($0, RSTART, RLENGTH) in seen)) { seen[substr($0, RSTART, RLENGTH)] = 1; pairs++ }
	}
	/: connected$/ { on = 0; print posts, chains, pairs }
' $TRACING/trace | sort | uniq -c | sed 's/^ *//' >"$TMP/posts"
check_eq "connections of one request each way: how many, requests, of them chains, queue pairs" "$CONNS 2 0 2" "$(paste -sd';' "$TMP/posts")"
check "no RDMA resource is made for them" diff "$TMP/before" "$TMP/after"
ktap_say "$(paste -sd';' "$TMP/after")"
echo >&"$go"
check_ended "the connections end" client
ktap_done
