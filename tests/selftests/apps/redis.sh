#!/bin/bash
# redis-server with redis-benchmark beside TCP and rsockets: pipelines of 1 and 100.
# rows: Z1 B1
# tier: full
# debug: no
# timeout: 300
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/apps.sh"

ktap_start
program="redis $(version "$(redis-server --version)")"
# bench DEPTH REQUESTS
bench() {
	serve B "Ready to accept connections" "${WITH[@]}" redis-server --bind "$ADDR_B" --save '' --appendonly no --protected-mode no || return
	client "${WITH[@]}" redis-benchmark -h "$ADDR_B" -t set -c 30 -n "$2" -P "$1" -d 512 --csv >"$TMP/csv" || return
	cat "$TMP/csv"
	value "$(sed -n 's/^"SET","\([0-9]*\).*/\1/p' "$TMP/csv")"
}
one() { bench 1 15000; }
hundred() { bench 100 100000; }
measure "$program" "SET of 512 B, 30 clients, pipeline 1" req/s one
measure "$program" "SET of 512 B, 30 clients, pipeline 100" req/s hundred
ktap_done
