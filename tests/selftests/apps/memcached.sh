#!/bin/bash
# memcached with libmemcached's tools: a value set and read, many by memcslap; over ZRS, TCP and
# rsockets.
# rows: Z1 B1
# tier: full
# debug: no
# timeout: 600
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/apps.sh"

ktap_start
needs memcslap
CLIENTS=8 EACH=400
head -c 900000 /dev/urandom >"$TMP/value"
tool() { client "${WITH[@]}" "$1" --servers="$ADDR_B:11211" "${@:2}"; }
# counted NAME: of memcached's own counters.
counted() { tool memcstat | sed -n "s/^.*\t$1: //p"; }
# slap TEST [COMMANDS]: requests a second; memcached has counted them all, and no miss.
slap() {
	local seconds before
	serve B "server listening" "${WITH[@]}" memcached -vv -u root -l "$ADDR_B" -p 11211 -t 2 || return
	tool memccp "$TMP/value" && tool memccat --file="$TMP/back" value && cmp "$TMP/value" "$TMP/back" || return
	before=$(counted "cmd_$2")
	tool memcslap --concurrency=$CLIENTS --execute-number=$EACH --test="$1" >"$TMP/slap" 2>&1 || return
	cat "$TMP/slap"
	seconds=$(sed -n "s/^Time to $1 .*threads: *\([0-9.]*\) seconds.*/\1/p" "$TMP/slap")
	tool memcstat
	[ $(($(counted "cmd_$2") - before)) -ge $((CLIENTS * EACH)) ] && [ "$(counted get_misses)" = 0 ] || return
	value "$(awk -v n=$((CLIENTS * EACH)) -v s="$seconds" 'BEGIN { printf "%.0f", n / s }')"
}
set_() { slap set set; }
get() { slap get get; }
program="memcached $(version "$(memcached --version)"), memcslap"
measure "$program" "set, 8 clients" req/s set_
measure "$program" "get, 8 clients" req/s get
ktap_done
