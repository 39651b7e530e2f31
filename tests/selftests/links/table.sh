#!/bin/bash
# The link table with hardly a place in its tiers: channels move in and out under traffic, and every
# byte is right. Groups of links to a peer: a second one is made where the first has many channels,
# and they share the bandwidth.
# rows: L1 L2 L3 L4 B8
# debug: full
# module: none
# timeout: 240
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
at_end zrs_unload
# loaded PARAM=VALUE...: loads the module again.
loaded() {
	! zrs_loaded || zrs_unload || ktap_bail "zrs.ko does not unload"
	zrs_load "$@" || ktap_bail "zrs.ko does not load with $*"
}
# table FIELD: a number of the link table.
table() { zrs links --json | tr ',{}' '\n' | sed -n "s/^\"$1\"://p"; }
# made FIELD: that of each link that A has made.
made() { A zrs links --json | tr '{}' '\n' | grep '"accepted":false' | tr ',' '\n' | sed -n "s/^\"$1\"://p" | tr -d '"'; }
# within TEXT CMD...: it succeeds in the end.
within() {
	local text=$1 end=$((SECONDS + 20 * PATIENCE))
	shift
	until "$@" || [ "$SECONDS" -ge "$end" ]; do nap 0.05; done
	check "$text" "$@"
}
traffic() {
	local sizes
	sizes=$(printf '1,5000,300k,%.0s' $(seq 1 "$(less 8)"))
	check_pair "$1: questions and answers on $(less 24) connections" pingpong --conns "$(less 24)" --rounds 20
	check_pair "$1: bulk data and messages both ways, at once" xfer --sizes "${sizes%,}" --parallel --both
	ktap_say "$(zrs links | tail -n 5 | tr '\n' ';')"
}
# idle: N idle connections, with two channels each.
N=6
idle() {
	local i
	start idle B "listening on" zrs-selftest serve "$ADDR_B:7900" || ktap_bail "serve"
	for i in $(seq 1 "$N"); do
		start "idle$i" A holding zrs-selftest hold --what conn --addr "$ADDR_B:7900" || ktap_bail "connection $i"
	done
}
over() {
	local i
	for i in $(seq 1 "$N"); do stop "idle$i"; done
	stop idle
}

# Both ends are in the same table, as there is one for the machine.
loaded table_hot=1 table_near=2 table_ways=1 table_sweep_ms=10
check_eq "the sizes" "1 2 1" "$(table hot_slots) $(table near_places) $(table ways)"
traffic "one hot slot"
check "channels made room for others" [ "$(table evicted)" -gt "$N" ]
check "some came back from the second tier" [ "$(table near_hits)" -gt 0 ]
check "and many from home" [ "$(table faults)" -gt "$N" ]
check "all are gone" zrs_idle
parked=$(table parked)
idle
check_eq "channels of idle connections" $((2 * N)) "$(table entries)"
none_hot() { [ "$(table hot)" = 0 ]; }
within "they are parked" none_hot
check "by the sweep" [ "$(table parked)" -gt "$parked" ]
over

# Left to itself, the table has a hot slot for each channel.
loaded max_channels=1500
check_eq "hot slots for all channels" 1500 "$(table hot_slots)"
check_pair "many active channels: questions and answers" pingpong --conns 200 --rounds 3
check_eq "no channel made room for another" 0 "$(table evicted)"

# Hot slots for all and nothing between them and home: only the sweep moves channels.
loaded table_hot=1024 table_near=0 table_sweep_ms=10
check_pair "with pauses: questions and answers" pingpong --conns 8 --rounds 20 --pause-us 60000
check "the sweep parked channels" [ "$(table parked)" -gt 0 ]
check "they came back" [ "$(table faults)" -gt 0 ]
check_eq "nobody was in the way, and there is no second tier" "0 0" "$(table evicted) $(table near_hits)"

# A second tier for all, and few hot slots: no channel goes to the backing store.
loaded table_hot=8 table_near=64 table_ways=64
check_pair "a second tier for all: questions and answers" pingpong --conns 16 --rounds 20
check "channels made room for others" [ "$(table evicted)" -gt 0 ]
check "all came back from the second tier" [ "$(table near_hits)" -gt 0 ]
check_eq "none from home" 0 "$(table faults)"

# group N: the state of A's links to B after more connections than one of them should have.
group() {
	loaded "links_per_peer=$1" link_channels=4
	# A socket in each host that stays, so that the links do.
	start holdA A holding zrs-selftest hold --what socket || ktap_bail "hold"
	start holdB B holding zrs-selftest hold --what socket || ktap_bail "hold"
	check_pair "up to $1 links: 12 connections" pingpong --conns 12 --rounds 5
	is_up() { [ "$(made state | grep -c UP)" = "$1" ] && [ "$(made state | wc -l)" = "$1" ]; }
	within "links made: $1" is_up "$1"
	none_open() { [ "$(counter channels)" = 0 ]; }
	within "up to $1 links: their connections have ended" none_open
	# Now that all are there, new connections go to the one that has the fewest.
	made tx_bytes >"$TMP/before"
	check_pair "up to $1 links: 12 more" pingpong --conns 12 --rounds 20
	check "links made: $1" is_up "$1"
	shares=$(made tx_bytes | paste "$TMP/before" - | awk '{ d[NR] = $2 - $1; all += d[NR] } END { for (i in d) print int(d[i] * 100 / all) }')
	ktap_say "percent of the bytes on each: $shares"
	# Sizes are drawn, so the shares are not quite the same.
	check_eq "each carries at least two thirds of an equal share" "$1" "$(awk -v most="$1" '$1 * most >= 66' <<<"$shares" | wc -l)"
	stop holdA
	stop holdB
}
group 1
group 2
ktap_done
