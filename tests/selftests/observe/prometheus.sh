#!/bin/bash
# `zrs stats --prometheus` against the module: the same values as the JSON of the commands, and a text of the format's lines
# alone; for an ordinary user those of the own network namespace.
# rows: B8
# debug: full
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

# value SERIES: its value in the text.
value() { awk -v s="$1" '$1 == s { print $2 }' "$TMP/text"; }

ktap_start
head -c 300000 /dev/urandom >"$TMP/file"
start recv B "listening on" zrs recv --listen "$ADDR_B:7000" --discard || ktap_bail "zrs recv"
start echo B "listening on" zrs ping --listen "$ADDR_B:7001" || ktap_bail "zrs ping --listen"
A zrs send "$TMP/file" "$ADDR_B:7000" >"$TMP/sent" 2>&1
check_ended "a transfer" recv
# Keeps the link up.
start ping A "seq=1" zrs ping "$ADDR_B:7001" -c 0 -i 1000 || ktap_bail "zrs ping"
# The pings', the listener's and its end; those of the transfer end.
for _ in $(seq 1 $((100 * PATIENCE))); do
	[ "$(counter sockets)" != 3 ] || break
	nap 0.1
done
other() { grep -vE '^(# (HELP|TYPE) zrs_[a-z_]+ .+|zrs_[a-z_]+(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? [0-9]+)$' "$TMP/text"; }
A setpriv --reuid 65534 --regid 65534 --clear-groups zrs stats --prometheus >"$TMP/text"
check_eq "for an ordinary user lines of the format alone" "" "$(other)"
check_eq "its network namespace's sockets and device" "1 rxeA" \
	"$(value zrs_sockets) $(sed -n 's/^zrs_device_pool_bytes{device="\([^"]*\)"} .*/\1/p' "$TMP/text" | xargs)"
A zrs stats --prometheus >"$TMP/text"
check_eq "lines of the format alone" "" "$(other)"
check_eq "each metric has one type" 0 "$(grep '^# TYPE' "$TMP/text" | awk '{ print $3 }' | sort | uniq -d | wc -l)"
check_eq "bytes sent" "$(counter tx_bytes)" "$(value zrs_tx_bytes_total)"
check "of which there are some" [ "$(value zrs_tx_bytes_total)" -ge 300000 ]
check_eq "sockets" "$(counter sockets)" "$(value zrs_sockets)"
check_eq "the cache's pools" "$(cache bytes)" "$(value 'zrs_cache_pool_bytes{cache="0"}')"
check_eq "a pool for each device" "rxeA rxeB" \
	"$(sed -n 's/^zrs_device_pool_bytes{device="\([^"]*\)"} .*/\1/p' "$TMP/text" | sort | xargs)"
id=$(A zrs links --json | jq '[.links[] | select(.accepted | not)][0].id')
check "the link, by its number and peer" grep -q \
	"^zrs_link_tx_bytes_total{link=\"$id\",device=\"rxeA\",local=\"$ADDR_A\",remote=\"$ADDR_B\",state=\"UP\"} [1-9]" "$TMP/text"
check "messages that have been read" [ "$(value 'zrs_residency_seconds_count{cache="0"}')" -gt 0 ]
check_fails "not with --json" "cannot be used with" zrs stats --prometheus --json
stop ping
stop echo
ktap_done
