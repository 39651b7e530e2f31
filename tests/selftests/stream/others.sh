#!/bin/bash
# Many connections on one link: they share it, and one without a reader does not stop the others.
# debug: full
# rows: B4 Z5 C3
# machines: any
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
twelve=$(printf '300k,%.0s' {1..12})
check_pair "12 connections at once, more than there are windows" xfer --sizes "${twelve%,}" --parallel --both
six=$(printf '1M,5000,%.0s' {1..6})
check_pair "12 of two sizes, by the ring where there is one" xfer --sizes "${six%,}" --parallel
check_pair "many connections of small messages" pingpong --conns "$(less 100)" --rounds 5 --most 2000

# Two streams of bulk data and two of small pieces without a reader, full by now.
for i in 1 2 3 4; do
	start "stalled$i" B "listening on" zrs-selftest stream-recv --listen "$ADDR_B:710$i" --expect eof --stall &&
		start "sender$i" A sending zrs-selftest stream-send "$ADDR_B:710$i" --expect eof \
			--chunk "$([ "$i" -gt 2 ] && echo 700 || echo 256k)" || ktap_bail "stalled stream $i"
done
sleep 1
for i in 1 2 3 4; do check "stream $i waits" alive "sender$i"; done
check_pair "another connection moves small data" pingpong --conns 2 --rounds "$(less 100)" --most 4k
check_pair "and bulk data" xfer --sizes "$(less 4096)k" --both
check_pair "and more connections" pingpong --conns 10 --rounds 10 --most 64k
check_eq "all on one link" 2 "$(counter links)"
ktap_say "$(counter rx_spilled) bytes were moved out of shared blocks"
ktap_done
