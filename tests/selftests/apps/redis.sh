#!/bin/bash
# redis-server with redis-benchmark over ZRS, TCP and rsockets: pipelines of 1 and 100, IPv6.
# rows: Z1 B1 B6
# tier: full
# debug: no
# timeout: 600
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/apps.sh"

ktap_start
program="redis $(version "$(redis-server --version)")"
# bench DEPTH REQUESTS [ADDRESS]: a second; and by redis-cli what the last ones have left.
bench() {
	local at=${3:-$ADDR_B}
	serve B "Ready to accept connections" "${WITH[@]}" redis-server --bind "$at" --save '' --appendonly no --protected-mode no || return
	client "${WITH[@]}" redis-benchmark -h "$at" -t set -c 30 -n "$2" -P "$1" -d 512 --csv >"$TMP/csv" || return
	cat "$TMP/csv"
	[ "$(client "${WITH[@]}" redis-cli -h "$at" strlen key:__rand_int__)" = 512 ] || return
	value "$(sed -n 's/^"SET","\([0-9]*\).*/\1/p' "$TMP/csv")"
}
one() { bench 1 15000; }
one6() { bench 1 15000 "$ADDR6_B"; }
hundred() { bench 100 100000; }
measure "$program" "SET of 512 B, 30 clients, pipeline 1" req/s one
measure "$program" "SET of 512 B, 30 clients, pipeline 1, IPv6" req/s one6
measure "$program" "SET of 512 B, 30 clients, pipeline 100" req/s hundred
ktap_done
