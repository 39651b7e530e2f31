#!/bin/bash
# Main memory for escaping data is reserved before it is needed: without it a connect is refused
# with ENOBUFS, and works again when others have ended, or when the limit is raised.
# rows: C3 C5 B11 B19
# params: escape_mib=4
# timeout: 60
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
start serve B "listening on" zrs-selftest fill --listen "$ADDR_B:7000" --conns 1000 || ktap_bail "the server"
start many A "opened" zrs-selftest fill --connect "$ADDR_B:7000" --conns 1000 || ktap_bail "the connections"
check "refused when there is no more of it" grep -q '^opened [1-9][0-9]*, then connect: ENOBUFS$' "$TMP/many"
ktap_say "$(cat "$TMP/many")"
check "that is counted" [ "$(cache refused)" -ge 1 ]
check "no more is reserved than may be" [ "$(cache escape_reserved)" -le "$(cache escape_max)" ]
check_eq "as much may be as the parameter says" $((4 << 20)) "$(cache escape_max)"
connect() { A zrs-selftest hold --what conn --addr "$ADDR_B:7000" </dev/null; }
check_fails "one more is refused as well" ENOBUFS connect
# There may be more.
echo 8 >/sys/module/zrs/parameters/escape_mib
check "connects when there may be more" connect
echo 4 >/sys/module/zrs/parameters/escape_mib
check_fails "and not when there may not" ENOBUFS connect
stop many
# They end when the peer has been notified.
again() {
	local end=$((SECONDS + 30 * PATIENCE))
	until connect; do
		[ "$SECONDS" -lt "$end" ] || return 1
		nap 0.2
	done
}
check "connects when the others have ended" again
stop serve
check "nothing is left of them" zrs_idle
check_eq "nothing stays reserved" 0 "$(cache escape_reserved)"
ktap_done
