#!/bin/bash
# Connections that a program wants signed (TCP_MD5SIG, TCP_AO) are signed, or there are none: at any
# address, and under `zrs run` where its rules say TCP: loopback, listed networks and ports.
# rows: B14
# params: connect_timeout_ms=10000 fallback_ms=10000
# timeout: 180
# debug: full
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
here=$(dirname "$0")
check_lines A python3 "$here/keys.py"
A python3 "$here/signed.py" 127.0.0.1 >"$TMP/plain" 2>&1 || {
	has "$TMP/plain" "Protocol not available" || ktap_bail "TCP without ZRS"
	ktap_skip "signed connections" "this kernel has no TCP_MD5SIG"
	ktap_done
}
check_eq "TCP without ZRS" 4 "$(grep -c '^ok' "$TMP/plain")"
check_lines A zrs run -- python3 "$here/signed.py" 127.0.0.1
check_lines A zrs run --tcp-net 10.77.0.0/16 -- python3 "$here/signed.py" "$ADDR_A"
check_lines A zrs run --tcp-port 7400 -- python3 "$here/signed.py" "$ADDR_A"
ktap_done
