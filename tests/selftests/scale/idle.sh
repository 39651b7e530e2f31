#!/bin/bash
# Many idle connections by ZRS in mode AUTO, CONNS of them: no TCP socket is kept inside, and an endpoint
# takes as much memory as in mode NEVER.
# rows: B14 B5
# debug: no
# params: max_channels=131072 escape_mib=16384 connect_timeout_ms=20000
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
conns=${CONNS:-300}
ulimit -n $((2 * conns + 1000)) || ktap_bail "ulimit -n"
# Here the first link may take its time.
echo 10000 >/sys/module/zrs/parameters/fallback_ms
check_lines A python3 "$(dirname "$0")/idle.py" "$conns"
ktap_done
