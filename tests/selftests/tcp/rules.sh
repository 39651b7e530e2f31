#!/bin/bash
# Rules of a network namespace: which sockets stay with TCP, the right to change them; the output of
# zrs rules and zrs ss.
# rows: B14 B15
# params: connect_timeout_ms=10000 fallback_ms=10000
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
here=$(dirname "$0")
at_end "A zrs rules flush; B zrs rules flush"
rules() { A zrs rules "$@"; }

cat >"$TMP/rules" <<-END
	# a comment
	tcp bind port 7010
	zrs connect net 10.77.0.0/16 port 7011,7012
	tcp net 198.51.100.0/24,2001:db8::/32
END
check "zrs rules load" rules load "$TMP/rules"
check_eq "list" "tcp bind port 7010;zrs connect net 10.77.0.0/16 port 7011;zrs connect net 10.77.0.0/16 port 7012;tcp net \
198.51.100.0/24;tcp net 2001:db8::/32;" "$(rules list | tr '\n' ';')"
check "what is listed can be loaded" rules load <(rules list)
check_eq "another namespace has none" "" "$(B zrs rules)"
check "add" rules add tcp port 22,8000-8100
check "add --first" rules add --first zrs any
check_eq "where they are" "zrs any;tcp port 8000-8100;" "$(rules | sed -n '1p;$p' | tr '\n' ';')"
check "del" rules del zrs any
check_fails "del: there is none" "there is no rule 'zrs any'" rules del zrs any
check_fails "a mistake" "'udp' is not tcp or zrs" rules add udp any
check_fails "a mistake in a file" "line 2: .*'any' stands alone" rules load <(printf 'tcp any\ntcp any port 2\n')
check_fails "too many" "there are 1025 rules" rules load <(yes "tcp any" | head -1025)
check_eq "then the rules are as they were" 7 "$(rules | wc -l)"
check_fails "an ordinary user" "CAP_NET_ADMIN" A setpriv --reuid 1000 --clear-groups zrs rules flush
check_eq "may list them" 7 "$(A setpriv --reuid 1000 --clear-groups zrs rules | wc -l)"
# A user may change the rules of a network namespace that the user owns, and no others.
if A setpriv --reuid 1000 --clear-groups unshare -Urn true 2>/dev/null; then
	check_eq "and changes those of a namespace of his own" "tcp any" \
		"$(A setpriv --reuid 1000 --clear-groups unshare -Urn sh -c "zrs rules add tcp any && zrs rules")"
else
	ktap_skip "a user's own namespace" "not allowed here"
fi
check_eq "the others stay" 7 "$(rules | wc -l)"
check "flush" rules flush
check_eq "nothing is left" "" "$(rules)"

check_lines A python3 "$here/rules.py"
B zrs rules flush

start both B listens python3 "$here/rules.py" serve 0.0.0.0 7013 1
start alone B listens python3 "$here/rules.py" serve 0.0.0.0 7014 0
B zrs rules --check >"$TMP/check" 2>&1
check "zrs rules --check: a server of both" has "$TMP/check" "zrs rules add tcp bind port 7013"
check "one of ZRS alone" has "$TMP/check" "open by ZRS alone"
check "what it is" has "$TMP/check" "0.0.0.0:7014"
stop alone
rules add tcp any
said=$(A zrs run --verbose python3 -c "import socket; socket.create_connection(('$ADDR_B', 7013))" 2>&1)
check_eq "zrs run --verbose says what carries it, and why" "carried by TCP (rule:" "$(grep -o 'carried by TCP ([a-z-]*:' <<<"$said")"
stop both
ktap_done
