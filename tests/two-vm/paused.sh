#!/bin/bash
# A machine stands still for a while, as when it is moved or debugged. Shorter than the links'
# patience: nothing happens. Longer: the other side's sockets report it; when the machine goes on,
# its own do.
# rows: B12 B9 E5 B14
# params: connect_timeout_ms=4000 ack_timeout_ms=500 retry_count=6
# timeout: 240
. "$(dirname "$0")/../lib/ktap.sh"
. "$(dirname "$0")/lib.sh"

BOUND=10

ktap_start
# traffic EXPECT-SENDER EXPECT-RECEIVER: B opens everything, so that all is on one link.
traffic() {
	start serve A "listening on" zrs-selftest serve "$ADDR_A:7000" &&
		start inA A "listening on" zrs-selftest stream-recv --listen "$ADDR_A:7001" --expect "$2" &&
		start outA A "listening on" zrs-selftest stream-send --listen "$ADDR_A:7002" --expect "$1" &&
		start waitA A "listening on" zrs-selftest stream-recv --listen "$ADDR_A:7003" --expect "$2" --ring &&
		start toA B sending zrs-selftest stream-send "$ADDR_A:7001" --expect "$1" &&
		start fromA B receiving zrs-selftest stream-recv --connect "$ADDR_A:7002" --expect "$2" --ring &&
		start quiet B sending zrs-selftest stream-send "$ADDR_A:7003" --expect "$1" --bytes 100k --linger &&
		start idle B waiting zrs-selftest lost "$ADDR_A:7000"
}

# A server for both, and how a connection to it in mode AUTO is carried, and why.
start web A "" zrs run --tcp=auto -- python3 -m http.server 7300
client=(env PYTHONDONTWRITEBYTECODE=1 python3 /zrs/tests/selftests/tcp/connect.py why "$ADDR_A" 7300)
carried() { [ "$(B "${client[@]}")" = "$1" ]; }
# waits NAME: a program in B that connects when it is told to, by connects NAME. answer NAME: what it says then.
waits() { B rm -f "/tmp/$1" && start "$1" B made "${client[@]}" "/tmp/$1"; }
connects() { B touch "/tmp/$1"; }
answer() { ended "$1" 60 >/dev/null && tail -1 "$TMP/$1"; }
tcp_opens() { A awk '/^Tcp:/ { n = $7 } END { print n }' /proc/net/snmp; }

traffic eof eof || ktap_bail "traffic"
check_within "a server for both is reached by ZRS" 20 carried "1 0"
opens=$(tcp_opens)
check "TCP connections are counted" test "$opens" -ge 0
for i in 1 2; do
	waits "why$i" || ktap_bail "a client in mode AUTO"
	check "pause $i: A stands still" vm_pause A
	connects "why$i"
	sleep 1.5
	check_eq "pause $i: connect() in mode AUTO waits for the answer on the link" made "$(tail -1 "$TMP/why$i")"
	check "pause $i: and goes on" vm_go A
	check_eq "pause $i: and has it then" "1 0" "$(answer "why$i")"
	sleep 2
done
check_eq "and no TCP connection came" "$opens" "$(tcp_opens)"
for name in toA outA quiet; do stop "$name"; done
for name in inA fromA waitA; do
	check_ended "paused twice for a short time: every byte is there ($name)" "$name" 20
	ktap_say "$(grep '^# ' "$TMP/$name")"
done
stop serve
stop idle

traffic reset reset || ktap_bail "traffic"
sleep 1
check "A stands still for long" vm_pause A
t0=$SECONDS
for name in toA fromA quiet idle; do
	check_ended "B's sockets report it ($name)" "$name" $BOUND
done
ktap_say "all of them after $((SECONDS - t0)) s"
check_within "B has no link left" 15 no_links B
check_lines B zrs-selftest refused "$ADDR_A:7000" --errno ETIMEDOUT,EHOSTUNREACH --within-ms "$((6000 * SCALE))"
waits why || ktap_bail "a client in mode AUTO"
connects why
sleep 2
check "A goes on" vm_go A
t0=$SECONDS
for name in inA outA waitA; do
	check_ended "A's sockets report it ($name)" "$name" $BOUND
done
ktap_say "all of them after $((SECONDS - t0)) s"
check_eq "connect() in mode AUTO goes on with TCP, as no link was made in time" "2 6" "$(answer why)"
check_within "B connects to A" 15 B zrs-selftest poll --peer "$ADDR_A:7000" --local "$ADDR_B" --refused "$ADDR_A:7999"
check_pair "and A to B" xfer --sizes 1,5000,300000 --both
stop web
ktap_done
