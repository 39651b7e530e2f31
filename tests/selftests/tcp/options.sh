#!/bin/bash
# Every option that ZRS sockets have is carried over to the TCP socket that comes to carry one, or takes its
# place under `zrs run` with no_new_privs; read there, and compared with a TCP socket that it was set on.
# rows: B14 B1
# params: connect_timeout_ms=5000 fallback_ms=3000
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
here=$(dirname "$0")
check_lines A python3 "$here/options.py"
A python3 "$here/options.py" baseline >"$TMP/want" || ktap_bail "options of TCP"
check_lines A setpriv --no-new-privs zrs run --tcp=never --tcp-net 10.77.0.0/16 --tcp-net fd77::/64 -- \
	python3 "$here/options.py" swap "$TMP/want"
ktap_done
