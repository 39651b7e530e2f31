#!/bin/bash
# One machine drains (`zrs drain`): clients of the other one that may use TCP get it, those of ZRS alone are refused, and
# the connections that there are go on; its servers for both still take TCP clients.
# rows: B14 B12
# timeout: 120
. "$(dirname "$0")/../lib/ktap.sh"
. "$(dirname "$0")/lib.sh"

ktap_start
client=/zrs/tests/selftests/tcp/connect.py
# why HOST IP: the carrier of a new connection in mode AUTO, and the reason.
why() { on "$1" env PYTHONDONTWRITEBYTECODE=1 python3 $client why "$2" 7300; }
carried() { [ "$(why "$1" "$2")" = "$3" ]; }
# fetched HOST IP OPTION...: the first line that a server there sends.
fetched() {
	local host=$1 ip=$2
	shift 2
	on "$host" zrs run "$@" -- curl -s --max-time $((20 * SCALE)) "http://$ip:7300/" | head -1
}
want="<!DOCTYPE HTML>"

start webA A "" zrs run --tcp=auto -- python3 -m http.server 7300
start webB B "" zrs run --tcp=auto -- python3 -m http.server 7300
check_within "B's server is reached by ZRS" 20 carried A "$ADDR_B" "1 0"
check_within "and A's" 20 carried B "$ADDR_A" "1 0"
start serve B "listening on" zrs-selftest serve "$ADDR_B:7000" &&
	start hold A holding zrs-selftest hold --what conn --addr "$ADDR_B:7000" || ktap_bail "a connection"

check "B drains" B zrs drain
check_eq "a client in A gets TCP: no program listens with ZRS" "2 7" "$(why A "$ADDR_B")"
check_eq "and B's server, which listens with both, answers" "$want" "$(fetched A "$ADDR_B")"
check_eq "a client in A with ZRS alone does not get there" "" "$(fetched A "$ADDR_B" --tcp=never)"
check_lines A zrs-selftest refused "$ADDR_B:7000" --errno ECONNREFUSED
check_eq "a program in B gets TCP" "$want" "$(fetched B "$ADDR_A")"
check_eq "the old connection is there" 1 "$(A zrs ss --json | jq "[.[] | select(.remote == \"$ADDR_B:7000\")] | length")"

check "B uses ZRS again" B zrs drain --stop
check_within "and so do clients in A" 20 carried A "$ADDR_B" "1 0"
stop hold
stop serve
stop webA
stop webB
ktap_done
