#!/bin/bash
# Each tracepoint of the group zrs: something happens, and the event says so, with the right values.
# One that is not enabled says nothing.
# hosts: own
# rows: B8 C5
# timeout: 120
# params: pool_mib=8 connect_timeout_ms=6000 fallback_ms=3000 copy_tail_kib=0
# debug: full
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

TRACING=/sys/kernel/tracing
cat >"$TMP/server.py" <<'PY'
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 253)
s.bind(("10.77.0.2", 7000))
s.listen(4)
print("listening", flush=True)
c, _ = s.accept()
got = [len(c.recv(100, socket.MSG_WAITALL)), len(c.recv(70000, socket.MSG_WAITALL))]
print("received", *got, flush=True)
c.close()
# A peer that does not read.
c, _ = s.accept()
time.sleep(1000)
PY
cat >"$TMP/client.py" <<'PY'
import select, socket, time
def fresh():
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM, 253)
s = fresh()
try:
    s.connect(("10.77.0.2", 7999))
except ConnectionRefusedError:
    pass
s = fresh()
s.connect(("10.77.0.2", 7000))
print("port", s.getsockname()[1], flush=True)
s.send(bytes(100))
s.send(bytes(65536))
s.close()
s = fresh()
s.connect(("10.77.0.2", 7000))
s.setblocking(False)
# Until there has been no room for a second. The call before may have failed because the link was
# full; the one after cannot: the peer gives no room.
room = select.poll()
room.register(s, select.POLLOUT)
waited = False
while True:
    try:
        s.send(bytes(65536))
        waited = False
    except BlockingIOError:
        if waited:
            break
        waited = not room.poll(1000)
print("full", s.getsockname()[1], flush=True)
time.sleep(1000)
PY

# events NAME: its recorded lines, without the task and the time.
events() { sed -n "s/^.*: $1: //p" $TRACING/trace; }
# seen TEXT EVENT PATTERN [TIMES]: passes if such an event (an extended regular expression of the
# whole line) comes, so often if that is said.
seen() {
	local n=0 _
	for _ in $(seq 1 $((40 * PATIENCE))); do
		n=$(events "$2" | grep -cxE "$3")
		[ "$n" = 0 ] || break
		nap 0.25
	done
	if [ "$n" = "${4:-$n}" ] && [ "$n" != 0 ]; then
		ktap_pass "$2: $1"
	else
		events "$2" | sed 's/^/#   /' | tail -20
		ktap_fail "$2: $1 ($n times)"
	fi
}

ktap_start
[ -d $TRACING/events ] || mount -t tracefs none $TRACING
[ -d $TRACING/events/zrs ] || {
	ktap_skip "tracepoints" "this kernel has none"
	ktap_done
}
echo zrs_accept zrs_close zrs_connect zrs_escape zrs_fallback zrs_link_down zrs_link_up zrs_mem_answer zrs_mem_ask zrs_recv zrs_send zrs_stall zrs_state |
	tr ' ' '\n' >"$TMP/expected"
ls -d $TRACING/events/zrs/zrs_* | sed 's/.*\///' >"$TMP/there"
check "the events are these" diff "$TMP/expected" "$TMP/there"
at_end "echo 0 >$TRACING/events/zrs/enable; echo >$TRACING/trace; echo always >/sys/module/zrs/parameters/escape"
echo always >/sys/module/zrs/parameters/escape || ktap_bail "the policy"
echo >$TRACING/trace
echo 1 >$TRACING/events/zrs/enable || ktap_bail "the events cannot be enabled"

start server B listening python3 "$TMP/server.py" || ktap_bail "the server"
start client A full python3 "$TMP/client.py" || ktap_bail "the client"
says server "received 100 65536" || ktap_bail "the server receives"
port=$(sed -n 's/^port //p' "$TMP/client")
read -r _ port2 < <(grep ^full "$TMP/client")
a="local=$ADDR_A:$port remote=$ADDR_B:7000"
b="local=$ADDR_B:7000 remote=$ADDR_A:$port"
chan='chan=[1-9][0-9]*:[0-9]+'

seen "made by us" zrs_link_up "link=[1-9][0-9]* local=$ADDR_A remote=$ADDR_B made_by=us"
seen "and taken by the peer" zrs_link_up "link=[1-9][0-9]* local=$ADDR_B remote=$ADDR_A made_by=peer"
seen "refused" zrs_connect "$chan local=[0-9.]+:[0-9]+ remote=$ADDR_B:7999 err=-111" 1
seen "done" zrs_connect "$chan $a err=0" 1
seen "the server's end" zrs_accept "$chan $b backlog=0" 1
seen "a listener is bound" zrs_state "chan=0:0 local=$ADDR_B:7000 remote=0.0.0.0:0 old=CLOSED new=BOUND" 1
seen "and listens" zrs_state "chan=0:0 local=$ADDR_B:7000 remote=0.0.0.0:0 old=BOUND new=LISTEN" 1
seen "connecting" zrs_state "$chan local=.* remote=$ADDR_B:7000 old=BOUND new=CONNECTING"
seen "connected" zrs_state "$chan $a old=CONNECTING new=ESTAB" 1
seen "at the other end" zrs_state "$chan $b old=CLOSED new=ESTAB" 1
seen "refused" zrs_state "$chan .* remote=$ADDR_B:7999 old=CONNECTING new=CLOSED" 1
seen "the peer has closed" zrs_state "$chan $b old=ESTAB new=CLOS(ING|ED)" 1
seen "small" zrs_send "$chan $a want=100 ret=100 way=copy" 1
seen "large" zrs_send "$chan $a want=65536 ret=65536 way=pin" 1
seen "small" zrs_recv "$chan $b want=100 ret=100 way=copy" 1
seen "up to the end" zrs_recv "$chan $b want=70000 ret=65536 way=copy" 1
seen "of the sender" zrs_close "$chan $a tx_bytes=65636 rx_bytes=0 unread=0" 1
seen "of the receiver" zrs_close "$chan $b tx_bytes=0 rx_bytes=65636 unread=0" 1
a="local=$ADDR_A:$port2 remote=$ADDR_B:7000"
b="local=$ADDR_B:7000 remote=$ADDR_A:$port2"
seen "a peer that does not read" zrs_stall "$chan $a want=[0-9]+ for=channel"
seen "its sender does not wait" zrs_send "$chan $a want=65536 ret=-11 way=copy"
seen "what was not read for long" zrs_escape "$chan $b len=[1-9][0-9]* of=(window|block) age_us=[0-9]+"
# The table and the events use the same number for the channel.
channel=$(A zrs ss --json | jq -r ".[] | select(.local == \"$ADDR_A:$port2\") | .channel")
check "the channel is that of zrs ss" \
	grep -qE "zrs_connect: chan=$channel:[0-9]+ local=$ADDR_A:$port2 " $TRACING/trace
# TCP comes to carry sockets: no program listens there with ZRS, and addresses of this host.
how() { A python3 "$(dirname "$0")/../tcp/connect.py" how "$1" 7998; }
check_eq "a port without a listener" "ECONNREFUSED 2 7" "$(how "$ADDR_B")"
seen "no program listens there" zrs_fallback "$chan local=[0-9.]+:[1-9][0-9]* remote=$ADDR_B:7998 why=no-listener" 1
check_eq "an address of this host" "ECONNREFUSED 2 2" "$(how "$ADDR_A")"
seen "this host" zrs_fallback "chan=0:0 local=[0-9.:]+ remote=$ADDR_A:7998 why=local" 1
check_eq "no other event" 2 "$(events zrs_fallback | grep -c .)"
# Filters find fields.
echo "rport == 7000 && ret > 0" >$TRACING/events/zrs/zrs_send/filter
check "fields can be filtered by" grep -q rport $TRACING/events/zrs/zrs_send/filter
echo 0 >$TRACING/events/zrs/zrs_send/filter

check "a device goes" rdma link delete "$DEV_A"
seen "with its connection" zrs_link_down \
	"link=[1-9][0-9]* local=$ADDR_A remote=$ADDR_B made_by=us was_up=1 channels=1 err=-19"
seen "at the other end" zrs_link_down \
	"link=[1-9][0-9]* local=$ADDR_B remote=$ADDR_A made_by=peer was_up=1 channels=1 err=-104"
check_eq "no event tells of an address of the kernel's" 0 \
	"$(grep -E ': zrs_[a-z_]+: ' $TRACING/trace | grep -ciE '[0-9a-f]{12,}')"

echo 0 >$TRACING/events/zrs/enable
echo >$TRACING/trace
stop client
stop server
nap 0.5
check_eq "what is not enabled is not recorded" 0 "$(grep -c ': zrs_' $TRACING/trace)"
ktap_done
