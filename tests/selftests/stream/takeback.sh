#!/bin/bash
# Windows go from one connection to another in the middle of data, while some become rings.
# rows: Z2 Z3 Z5 B3 C3
# machines: any
# params: window_idle_ms=0
# timeout: 90
# debug: full
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
# Two machines have a pool each: there are windows for more connections.
conns=${ZRS_MACHINES:+40}
before=$(counter windows_revoked)
# Twice only where that is quick.
for seed in $(seq $((SCALE > 1 ? 1 : 2))); do
	check_pair "${conns:=12} connections at once, seed $seed" windows --at-once --conns "$conns" --seed "$seed"
done
after=$(counter windows_revoked)
ktap_say "$((after - before)) windows were asked back"
check "windows were asked back" [ "$((after - before))" -gt 0 ]
check "no window is leaked" zrs_idle
ktap_done
