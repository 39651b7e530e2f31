#!/bin/bash
# The module loads into the stock kernel and unloads again, 50 times, with memory back where it was;
# in every fifth round a socket makes the pools of both devices.
# rows: B9 Z2
# module: none
# timeout: 300
# debug: full
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
check "loads" zrs_load
check_eq "no pool before the first socket" 0 "$(counter pool_bytes)"
check "a socket" A zrs-selftest hold --what socket
check_eq "with it come the pools of both devices" $((2 * 8 << 20)) "$(counter pool_bytes)"
check "unloads" zrs_unload

lean=$(lean_module)
available_kb() { awk '/^MemAvailable:/ { print $2 }' /proc/meminfo; }
round() {
	insmod "$lean" || { echo "does not load"; return 1; }
	[ $(($1 % 5)) != 0 ] || A zrs-selftest hold --what socket <&- || { echo "no socket"; return 1; }
	zrs_unload || { echo "does not unload"; return 1; }
}
rounds() {
	local i
	for i in $(seq "$1"); do round "$i" || { echo "in round $i"; return 1; }; done
}
rounds 5 >/dev/null
# What 50 rounds lose is lost each time; what others free or take meanwhile is not.
for n in 1 2 3; do
	kernel_memory before
	# shellcheck disable=SC2154 # kernel_memory sets it
	before=$kernel_kb
	available=$(available_kb)
	check "50 rounds" rounds 50
	kernel_memory after
	grown=$((kernel_kb - before)) lost=$((available - $(available_kb)))
	ktap_say "$n: in 50 rounds kernel memory grew by $grown KiB, and $lost KiB less are available"
	[ "$grown" -ge 100 ] || break
done
check "kernel memory is where it was" [ "$grown" -lt 100 ]
# Four a round: each CPU keeps up to 60 free objects of a cache in a sheaf.
check "no objects are lost in each round" slabs_grown before after 200
# Half of one of the 20 pools that were made; pages in per-CPU lists come and go by less.
check "so is what is available" [ "$lost" -lt 4096 ]
ktap_done
