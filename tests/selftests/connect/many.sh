#!/bin/bash
# Connections that come, go and cross: backlog, both directions, one after the other.
# rows: B4 E1 Z1 Z8
# machines: any
# timeout: 90
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
n=$(less 100)
ones=$(printf '100,%.0s' $(seq 1 "$n"))
check_pair "$n connections one after the other" xfer --sizes "${ones%,}"
check_pair "$(less 50) connections at once" pingpong --conns "$(less 50)" --rounds 2 --most 100
# Both hosts call each other at the same time, when there is no link yet.
check "the links end with the last socket" zrs_idle
no_link() {
	local end=$((SECONDS + 10 * PATIENCE))
	while [ "$(counter links)" != 0 ] && [ "$SECONDS" -lt "$end" ]; do nap 0.2; done
	[ "$(counter links)" = 0 ]
}
check "no link a second later or so" no_link
start serverA A "listening on" zrs-selftest xfer --server "$ADDR_A:7500" --sizes 1,5000,300000 --both || ktap_bail "server"
start serverB B "listening on" zrs-selftest xfer --server "$ADDR_B:7500" --sizes 1,5000,300000 --both || ktap_bail "server"
start clientA A "" zrs-selftest xfer --client "$ADDR_B:7500" --sizes 1,5000,300000 --both
start clientB B "" zrs-selftest xfer --client "$ADDR_A:7500" --sizes 1,5000,300000 --both
check_ended "A's client" clientA
check_ended "A's server" serverA
check_ended "B's server" serverB
check_ended "B's client" clientB
# To its own address, over the device.
start self A "listening on" zrs-selftest xfer --server "$ADDR_A:7600" --sizes 1,5000,300000 --both || ktap_bail "server"
check "a host and itself" A zrs-selftest xfer --client "$ADDR_A:7600" --sizes 1,5000,300000 --both
check_ended "the other end" self
ktap_done
