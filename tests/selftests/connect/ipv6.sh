#!/bin/bash
# Sockets of AF_INET6: between the hosts by every kind of address, and their answers compared with
# TCP's.
# hosts: own
# rows: B6 Z1 E5 L4
# debug: full
# timeout: 240
# params: pool_mib=8 blocks=1024 link_credit=32 connect_timeout_ms=5000
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
# Additional link-local addresses, and a second global one of A; usable at once.
ip -n zrsA -batch - <<-BATCH
	addr add fe80::a/64 dev va nodad
	addr add fd77::3/64 dev va nodad
BATCH
ip -n zrsB addr add fe80::b/64 dev vb nodad
index() { ip -n "zrs$1" -o link show "$2" | cut -d: -f1; }
VA=$(index A va)
# met ADDRESS: the hosts know each other's Ethernet addresses. Over veth the RDMA core misses the
# answer to its own question, and finds it a second later (testing.rst, Findings).
met() {
	A bash -c "echo >/dev/udp/$1/9" 2>/dev/null
	nap 0.3
}
met "$ADDR6_B"
met "fe80::b%va"
# Links stay while there is a socket on both sides.
start kept-a A holding zrs-selftest hold --what listen --addr "$ADDR_A:7000" || ktap_bail "a listener in A"
start kept-b B holding zrs-selftest hold --what listen --addr "$ADDR_B:7000" || ktap_bail "a listener in B"
head -c 3000000 /dev/urandom >"$TMP/file"

PORT6=7600
# carries TEXT LISTEN TO: a file from A to B, whose receiver listens at LISTEN; then round trips.
carries() {
	local text=$1 port
	PORT6=$((PORT6 + 1)) port=$PORT6
	start recv B "listening" zrs recv --listen "$2:$port" --output "$TMP/copy" || {
		ktap_fail "$text: the receiver"
		return 0
	}
	check "$text: sent" A zrs send "$TMP/file" "$3:$port"
	check_ended "$text: received" recv
	check "$text: the same bytes" cmp "$TMP/file" "$TMP/copy"
	rm -f "$TMP/copy"
}
carries "an IPv6 address" "[$ADDR6_B]" "[$ADDR6_B]"
carries "all addresses, by IPv6" "[::]" "[$ADDR6_B]"
carries "all addresses, by IPv4" "[::]" "$ADDR_B"
carries "all addresses, by a v4-mapped one" "[::]" "[::ffff:$ADDR_B]"
carries "an IPv4 address, by a v4-mapped one" "$ADDR_B" "[::ffff:$ADDR_B]"
carries "a v4-mapped address, by IPv4" "[::ffff:$ADDR_B]" "$ADDR_B"
carries "a link-local address" "[fe80::b%$(index B vb)]" "[fe80::b%$VA]"
carries "all addresses, by a link-local one" "[::]" "[fe80::b%$VA]"

# The links: one for each pair of addresses, named as they are.
links=$(A zrs links)
ktap_say "$links"
check "a link between $ADDR_A and $ADDR_B" grep -qE "$ADDR_A +$ADDR_B +UP" <<<"$links"
# By route: A has two global addresses, and two link-local ones with that which the kernel has made.
check "a link to $ADDR6_B" grep -qE "fd77::[13] +$ADDR6_B +UP" <<<"$links"
check "a link to fe80::b" grep -qE "fe80::[0-9a-f:]+%$VA +fe80::b%$VA +UP" <<<"$links"

check_lines A zrs-selftest ipv6 --v4 "$ADDR_A" --v6 "$ADDR6_A" --other fd77::3 --link fe80::a --interface "$VA"

# A second device on both hosts, with the same link-local addresses: the interface tells them apart,
# and routes do.
ip link add va2 netns zrsA mtu 9000 type veth peer name vb2 netns zrsB mtu 9000
at_end "ip -n zrsA link del va2"
# second HOST DEVICE LAST: its end.
second() {
	ip -n "zrs$1" -batch - <<-BATCH
		addr add 10.78.0.$3/24 dev $2
		addr add fd78::$3/64 dev $2 nodad
		addr add fe80::${1,,}/64 dev $2 nodad
		link set $2 up
	BATCH
	"$1" rdma link add "rxe${1}2" type rxe netdev "$2"
}
second A va2 1 && second B vb2 2 || ktap_bail "a second device"
at_end "rdma link delete rxeB2"
at_end "rdma link delete rxeA2"
VA2=$(index A va2)
met fd78::2
met "fe80::b%va2"
carries "the second device, by IPv6" "[::]" "[fd78::2]"
carries "the second device, by IPv4" "[::]" 10.78.0.2
carries "the second device, by a link-local address" "[fe80::b%$(index B vb2)]" "[fe80::b%$VA2]"
carries "the first device still" "[::]" "[fe80::b%$VA]"
links=$(A zrs links)
ktap_say "$links"
for link in "rxeA2 +fd78::1 +fd78::2" "rxeA2 +10.78.0.1 +10.78.0.2" "rxeA2 +fe80::[0-9a-f:]+%$VA2 +fe80::b%$VA2" \
	"rxeA +fe80::[0-9a-f:]+%$VA +fe80::b%$VA"; do
	check "a link: ${link// +/ }" grep -qE "$link +UP" <<<"$links"
done
ktap_done
