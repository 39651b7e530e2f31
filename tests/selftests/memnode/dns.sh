#!/bin/bash
# The directory of memory nodes from text records in DNS, by the example for it.
# rows: M1
# hosts: none
# debug: no
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/memnode.sh"

ktap_start
nodes_up || ktap_bail "three hosts and two nodes"
example=/zrs/userspace/examples/nodes/dns.sh
name=nodes.example.net
# server RECORD...: a server at C with these text records of the name.
server() {
	local record
	{
		printf '%s\n' no-resolv no-hosts local=/example.net/ "host-record=$name,10.77.0.9"
		for record in "$@"; do echo "txt-record=$name,$record"; done
	} >"$TMP/conf"
	start dnsmasq C "started, version" dnsmasq --no-daemon --conf-file="$TMP/conf" -u root --listen-address="$ADDR_C" --bind-interfaces
}
watch_once() { A zrs mem nodes watch --once -- "$example" "$@" "@$ADDR_C"; }

server "1:1 $ADDR_B" || ktap_bail "a server"
check "the directory is what DNS has" watch_once $name
check_eq "and no more" "1:1 $ADDR_B" "$(A zrs mem nodes | xargs)"
start poll A "" zrs mem nodes watch --interval 0.5 -- "$example" $name "@$ADDR_C"
stop dnsmasq
check "a server that does not answer is told" says poll "stays as it is"
check_eq "and changes nothing" "1:1 $ADDR_B" "$(A zrs mem nodes | xargs)"
check_fails "a node that is not in DNS is not known" "no host serves this node" A zrs mem alloc 1:2 1M
# The second one in two pieces.
server "1:1 $ADDR_B" "1:,2 $ADDR_C" || ktap_bail "the server with another record"
check "a record that is added arrives" says poll "2 nodes"
check_eq "as it is" "1:1 $ADDR_B 1:2 $ADDR_C" "$(A zrs mem nodes | xargs)"
check "and the node can be used" A zrs mem alloc 1:2 1M
stop poll
check_fails "a name that the server does not have" "REFUSED|NXDOMAIN" watch_once nods.example.net
stop dnsmasq

# More than a datagram of DNS holds.
mapfile -t many < <(seq -f "1:%g 10.77.1.1" 10 200)
server "${many[@]}" || ktap_bail "a server with many records"
check "many records" watch_once $name
check_eq "all of them" "${#many[@]}" "$(A zrs mem nodes | wc -l)"
stop dnsmasq
server || ktap_bail "a server without a record"
check_fails "no record" "has no text record" watch_once $name
check_eq "and the directory stays" "${#many[@]}" "$(A zrs mem nodes | wc -l)"
ktap_done
