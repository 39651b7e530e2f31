#!/bin/bash
# Programs that use UDP under `zrs run --udp`: iperf3, socat, nc, OpenSSL's DTLS, asyncio, memcached, dnsmasq
# with dig, sockperf, qperf. All data arrives; by RDMA, once that has taken over, with ZRS at both ends, and by UDP with
# plain UDP at either end. dgram_stall_ms has its default; of iperf3's flood the datagrams that are missing are those
# that links have counted as dropped.
# rows: Z7 Z1 B1
# tier: full
# debug: no
# timeout: 900
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
program=(python3 "$(dirname "$0")/dgram.py")
# Their streams are TCP's, so that ZRS counts datagrams alone.
zrs=(zrs run --udp --tcp=only --)

# by_udp: datagrams that sockets of UDP have received in both hosts.
by_udp() {
	local host n=0
	for host in A B; do n=$((n + $("$host" awk '/^Udp: [0-9]/ { print $2 }' /proc/net/snmp))); done
	echo "$n"
}
# by_rdma: bytes that programs have received by ZRS since the measurement began.
by_rdma() { echo $(($(counter rx_bytes) - RECEIVED)); }
# took_over: waits until RDMA carries data; by UDP there is nothing to wait for.
took_over() {
	local _
	[ "$WAY" = rdma ] || return 0
	for _ in $(seq 1 $((200 * PATIENCE))); do
		[ "$(by_rdma)" -lt $LEAST ] || return 0
		nap 0.1
	done
	return 1
}
# So many bytes must have come by RDMA where it takes over.
LEAST=4000

# carried NAME FUNCTION [DATAGRAMS [CHECK]]: FUNCTION starts the server with SERVER and runs the client with CLIENT in front,
# and fails if data is missing or wrong; with ZRS at both ends and at either one. Of its datagrams at least so
# many come by UDP where all do.
PORT=7200
carried() {
	local name=$1 fn=$2 least=${3:-60} what=${4:-all data arrives} ends seen
	for ends in "zrs zrs rdma" "zrs plain udp" "plain zrs udp"; do
		read -r SERVER CLIENT WAY <<<"$ends"
		PORT=$((PORT + 1))
		RECEIVED=$(counter rx_bytes) seen=$(by_udp)
		if [ "$SERVER" = zrs ]; then SERVER=("${zrs[@]}"); else SERVER=(); fi
		if [ "$CLIENT" = zrs ]; then CLIENT=("${zrs[@]}"); else CLIENT=(); fi
		rm -f "$TMP/enough" "$TMP/sent" "$TMP/got" "$TMP/all" "$TMP/figures"
		ends="${ends% *} (server, client)"
		if ! "$fn" >"$TMP/said" 2>&1; then
			sed 's/^/#   /' "$TMP/said" | tail -12
			show server
			ktap_fail "$name, $ends: $what"
		else
			ktap_pass "$name, $ends: $what"
		fi
		stop server TERM
		RECEIVED=$(by_rdma) seen=$(($(by_udp) - seen))
		ktap_say "$RECEIVED bytes by RDMA, $seen datagrams by UDP"
		[ ! -s "$TMP/figures" ] || ktap_say "$(cat "$TMP/figures")"
		if [ "$WAY" = rdma ]; then
			check "$name, $ends: RDMA has taken over" test "$RECEIVED" -ge $LEAST
		else
			check "$name, $ends: all by UDP" test "$RECEIVED" = 0 -a "$seen" -ge "$least"
		fi
	done
}

# lines: a line each 10 ms, 80 at least and until so many came by the way that is meant; they go to $TMP/sent as well. While
# the client is starting, or busy, lines pile up, and go in one datagram.
lines() {
	local i=0 line end=$((SECONDS + 30 * PATIENCE))
	while [ "$SECONDS" -lt $end ]; do
		i=$((i + 1)) line="$i $RANDOM $RANDOM $RANDOM $RANDOM $RANDOM $RANDOM"
		echo "$line" >>"$TMP/sent"
		echo "$line" || return
		nap 0.01
		if [ $i -ge 80 ] && [ $((i % 20)) = 0 ] && enough; then break; fi
	done
	# The last answers are still on their way back.
	nap $((2 * SCALE))
}
# enough: as "carried" checks afterwards. Its variables.
enough() {
	if [ "$WAY" = rdma ]; then [ "$(by_rdma)" -ge $LEAST ]; else [ $(($(by_udp) - seen)) -ge "$least" ]; fi
}
# whole FILE: all lines have arrived there; there may be others. When RDMA takes over they may overtake each other.
whole() {
	local _
	for _ in $(seq 1 $((100 * PATIENCE))); do
		grep -E '^[0-9]+( [0-9]+){6}$' "$1" | sort -n >"$TMP/got"
		cmp -s "$TMP/sent" "$TMP/got" && return
		nap 0.1
	done
	diff "$TMP/sent" "$TMP/got"
}

socat_() {
	start server B "listening on" "${SERVER[@]}" socat -d -d "UDP4-LISTEN:$PORT,bind=$ADDR_B" PIPE || return
	lines | A timeout $((120 * SCALE)) "${CLIENT[@]}" socat -t $((2 * SCALE)) - "UDP4:$ADDR_B:$PORT" >"$TMP/all"
	whole "$TMP/all"
}
carried "socat, sent back" socat_ 60

nc_() {
	start server B "Bound on" "${SERVER[@]}" sh -c 'exec nc -nuv -l "$0" "$1" >"$2"' "$ADDR_B" "$PORT" "$TMP/all" || return
	lines | A timeout $((120 * SCALE)) "${CLIENT[@]}" nc -nu -q 1 "$ADDR_B" "$PORT"
	whole "$TMP/all"
}
carried "nc" nc_ 30

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=zrs -days 2 -keyout "$TMP/key" -out "$TMP/cert" 2>/dev/null
dtls() {
	start server B ACCEPT "${SERVER[@]}" openssl s_server -dtls -cert "$TMP/cert" -key "$TMP/key" -accept "$ADDR_B:$PORT" || return
	lines | A timeout $((120 * SCALE)) "${CLIENT[@]}" openssl s_client -dtls -connect "$ADDR_B:$PORT"
	whole "$TMP/server"
}
carried "openssl s_server -dtls" dtls 30

# The client goes on until RDMA has taken over.
asyncio_() {
	start server B "listening on" "${SERVER[@]}" "${program[@]}" echo "$ADDR_B" "$PORT" || return
	start client A "" "${CLIENT[@]}" "${program[@]}" ask "$ADDR_B" "$PORT" "$TMP/enough"
	took_over
	touch "$TMP/enough"
	ended client 60 || { show client; return 1; }
}
carried "asyncio, sent back" asyncio_ 400

# needed PROGRAM: whether the root has it; that of make test-apps has.
needed() {
	command -v "$1" >/dev/null || { ktap_skip "$1" "the root does not have it: make test-apps"; false; }
}

memcached_() {
	start server B "server listening (udp)" "${SERVER[@]}" memcached -vv -u root -l "$ADDR_B" -p 0 -U "$PORT" -t 1 || return
	start client A "" "${CLIENT[@]}" "${program[@]}" memcached "$ADDR_B" "$PORT" "$TMP/enough"
	took_over
	touch "$TMP/enough"
	ended client 60 || { show client; return 1; }
}
! needed memcached || carried "memcached -U" memcached_ 400

# A socket for each question, so the server's answers go to a new port each. They name the interface that the question
# has come by.
NAMES=100
for i in $(seq $NAMES); do echo "192.0.2.$i n$i.zrs.test"; done >"$TMP/hosts"
cut -d' ' -f2 "$TMP/hosts" >"$TMP/names"
dns() {
	local end=$((SECONDS + 60 * PATIENCE))
	start server B "started, version" "${SERVER[@]}" dnsmasq --no-daemon --conf-file=/dev/null -u root --no-resolv --no-hosts \
		--addn-hosts="$TMP/hosts" --listen-address="$ADDR_B" --port="$PORT" || return
	while :; do
		A timeout $((120 * SCALE)) "${CLIENT[@]}" dig "@$ADDR_B" -p "$PORT" +notcp +ignore +time=$((5 * SCALE)) +short -f "$TMP/names" \
			>"$TMP/all" || return
		cut -d' ' -f1 "$TMP/hosts" | diff - "$TMP/all" || return
		[ "$WAY" = rdma ] && [ "$(by_rdma)" -lt $LEAST ] && [ "$SECONDS" -lt $end ] || return 0
	done
}
! needed dnsmasq || carried "dnsmasq, dig" dns $((2 * NAMES * 3 / 4))

sockperf_() {
	start server B "" "${SERVER[@]}" sockperf server -i "$ADDR_B" -p "$PORT" || return
	nap $((2 * SCALE))
	A timeout $((120 * SCALE)) "${CLIENT[@]}" sockperf ping-pong -i "$ADDR_B" -p "$PORT" -t 6 -m 1000 >"$TMP/all" || return
	cat "$TMP/all"
	grep -q 'dropped messages = 0; # duplicated messages = 0; # out-of-order messages = 0' "$TMP/all"
}
! needed sockperf || carried "sockperf ping-pong" sockperf_ 100

# A connection of TCP tells the ends about each other; the server's UDP socket has another port.
qperf_() {
	start server B "" "${SERVER[@]}" qperf -lp "$PORT" || return
	nap $((2 * SCALE))
	A timeout $((120 * SCALE)) "${CLIENT[@]}" qperf -lp "$PORT" -t 6 -m 1000 "$ADDR_B" udp_lat >"$TMP/all" || return
	cat "$TMP/all"
	grep -q 'latency *=' "$TMP/all"
}
! needed qperf || carried "qperf udp_lat" qperf_ 100

# link_drops: datagrams that the links of A have dropped. Links outlive the program by a minute.
link_drops() { A zrs links --json | jq '[.links[].dgram_drops] | add // 0'; }
# 20 Mbit/s, or what the machine has. The receive buffer holds all of it, so that the receiver may be as slow as it is.
iperf() {
	local dropped
	dropped=$(link_drops)
	start server B "Server listening" "${SERVER[@]}" iperf3 -s -1 --forceflush -B "$ADDR_B" -p "$PORT" || return
	A timeout $((300 * SCALE)) "${CLIENT[@]}" iperf3 -u -c "$ADDR_B" -p "$PORT" -b 20M -l 1200 -w 32M -k 10000 -J >"$TMP/sent" || return
	"${program[@]}" iperf "$TMP/sent" $(($(link_drops) - dropped)) >"$TMP/figures"
}
for limit in rmem_max wmem_max netdev_max_backlog; do
	was=$(cat /proc/sys/net/core/$limit)
	at_end "echo $was >/proc/sys/net/core/$limit"
	echo 33554432 >/proc/sys/net/core/$limit
done
carried "iperf3 -u" iperf 5000 "what is missing was counted"

ktap_done
