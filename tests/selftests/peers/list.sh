#!/bin/bash
# The list of peers of a network namespace: which hosts have links with it in either direction, by
# streams, datagrams and memory nodes; the right to change it; the effect on a refused host and its programs.
# rows: B16
# params: connect_timeout_ms=10000 fallback_ms=10000
# debug: full
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
log_all
at_end "A zrs peers flush; B zrs peers flush; A zrs mem nodes clear; B zrs mem nodes clear"
peers() { A zrs peers "$@"; }

# The command.
cat >"$TMP/peers" <<-END
	# a comment
	allow 192.0.2.77/24 2001:db8::/32
	deny any
END
check "zrs peers load" peers load "$TMP/peers"
check_eq "list" "allow 192.0.2.0/24;allow 2001:db8::/32;deny 0.0.0.0/0;deny ::/0;" "$(peers | tr '\n' ';')"
check "what is listed can be loaded" peers load <(peers list)
check_eq "another namespace has none" "" "$(B zrs peers)"
check "an entry replaces that of its network" peers deny 192.0.2.1/24
check_eq "it does" "1 0" "$(peers | grep -c '^deny 192.0.2.0/24$') $(peers | grep -c '^allow 192.0.2.0/24$')"
check "del" peers del 192.0.2.0/24
check_fails "del: there is none" "there is no entry of 192.0.2.0/24" peers del 192.0.2.0/24
check_fails "a mistake" "'10.0.0.300' is not an address" peers deny 10.0.0.300
check_fails "mistakes in a file" "line 2: 10.0.0.0/8 comes twice" peers load <(printf 'deny 10.0.0.0/8\nallow 10.1.2.3/8\n')
check_fails "too many" "there are 1025 entries" peers load <(seq -f 'allow 2001:db8::%.0f' 1 1025)
check_eq "then the list is as it was" 3 "$(peers | wc -l)"
check_fails "an ordinary user" "CAP_NET_ADMIN" A setpriv --reuid 1000 --clear-groups zrs peers flush
check_eq "may list it" 3 "$(A setpriv --reuid 1000 --clear-groups zrs peers | wc -l)"
check "flush" peers flush
check_eq "nothing is left" "" "$(peers)"
peers allow 192.0.2.1 2>"$TMP/hint"
check "a list that refuses nothing is told" has "$TMP/hint" "zrs peers deny any"
peers flush

check_lines A python3 "$(dirname "$0")/list.py"
check "the log has a refused host" sh -c "dmesg | grep -q 'link from $ADDR_A refused: not in the list of peers'"

# Memory nodes.
for h in A B; do
	$h zrs mem nodes self 1 && $h zrs mem nodes add 1:1 "$ADDR_B" || ktap_bail "zrs mem nodes"
done
start node B "serving node 1:1" zrs mem serve --node 1:1 --size 4M --open || ktap_bail "a memory node"
head -c 10000 /dev/urandom >"$TMP/file"
r=$(A zrs mem put "$TMP/file" 1:1 2>/dev/null) || ktap_bail "put"
for h in A B; do
	$h zrs peers deny any
	check_fails "memory: $h denies the other" "does not allow this" A zrs mem put "$TMP/file" 1:1
	check_fails "and ends the link that there was" "." A zrs mem get "$r" "$TMP/back"
	$h zrs peers flush
	# The link that is being taken down, if there is one, is in the way for a moment.
	for _ in $(seq 1 $((100 * PATIENCE))); do
		r=$(A zrs mem put "$TMP/file" 1:1 2>/dev/null) && break
		nap 0.1
	done
	check "allowed again" A zrs mem get "$r" "$TMP/back"
done
stop node
ktap_done
