#!/bin/bash
# redis-server, redis-cli and redis-benchmark under `zrs run`, one request at a time and 100.
# hosts: own
# rows: Z1 B1
# timeout: 120
# debug: full
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
# tcp HOST: connections that programs there have opened by TCP.
tcp() { "$1" awk '/^Tcp: [0-9]/ { print $6 }' /proc/net/snmp; }
cli() { A zrs run --tcp=never -- redis-cli -h "$ADDR_B" "$@"; }

start redis B "Ready to accept connections" zrs run --tcp=never -- redis-server --bind "$ADDR_B" --save '' --appendonly no \
	--protected-mode no --dir "$TMP" || ktap_bail "redis-server"
check "it listens with ZRS" bash -c "ip netns exec zrsB zrs ss -l | grep -E '^LISTEN .*$ADDR_B:6379'"
check_eq "redis-cli: SET" OK "$(cli set key value)"
check_eq "GET" value "$(cli get key)"
head -c 1000000 /dev/urandom | base64 -w 0 >"$TMP/large"
cli -x set large <"$TMP/large" >/dev/null
cli --raw get large | head -c -1 >"$TMP/back"
check "a value of 1.3 MB" cmp "$TMP/large" "$TMP/back"
check_eq "a pipe of 1000 commands" 1000 "$(
	seq 1000 | sed 's/.*/INCR n/' | cli | tail -1
)"
# A subscriber is woken by another client.
start sub A "news" zrs run --tcp=never -- redis-cli -h "$ADDR_B" subscribe news
cli publish news hello >/dev/null
check "a subscriber gets what is published" says sub hello
stop sub

# bench DEPTH REQUESTS: all are answered. (It says nothing else of errors.)
bench() {
	check "redis-benchmark, pipeline of $1" A zrs run --tcp=never -- redis-benchmark -h "$ADDR_B" -t set,get -c 20 \
		-n "$2" -P "$1" -r 1000 -d 100 --csv
	check_eq "SET and GET have a rate" 2 "$(grep -cE '^"(SET|GET)[^"]*","[1-9]' "$TMP/out")"
}
bench 1 "$(less 4000)"
bench 100 "$(less 40000)"
check_eq "no connection by TCP" 0 "$(tcp A)"
check_eq "SHUTDOWN" "" "$(cli shutdown nosave 2>&1)"
check_ended "redis-server ends" redis
ktap_done
