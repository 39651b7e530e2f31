#!/bin/bash
# The module loads into the stock kernel, makes the pools of both devices without a socket, and unloads again; 50 times,
# with memory back where it was: in every fifth round a socket waits for the pools, in the others the module ends
# while they are being made.
# rows: B9 Z2
# module: none
# timeout: 300
# debug: full
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
check "loads" zrs_load
for _ in $(seq $((100 * PATIENCE))); do
	[ "$(counter pool_bytes)" -lt $((2 * 8 << 20)) ] || break
	nap 0.1
done
check_eq "the pools of both devices come without a socket" $((2 * 8 << 20)) "$(counter pool_bytes)"
check "a socket" A zrs-selftest hold --what socket
check_eq "with it come no more" $((2 * 8 << 20)) "$(counter pool_bytes)"
check "unloads" zrs_unload

# A parameter that is written has the worker try again; a thread that waits for the first attempt wakes all the same.
check "loads" zrs_load
for _ in $(seq 100); do echo 0 >/sys/module/zrs/parameters/pool_mib; done
check "a socket, after a parameter was written while pools were made" A zrs-selftest hold --what socket
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
# A leak adds up over the rounds, and memory that is only cached does not: each CPU keeps up to
# 60 free objects of a cache in a sheaf, which count as in use, 150 KiB of all caches. So the bounds are
# for a round, and are tried again over more rounds.
kernel_memory before
# shellcheck disable=SC2154 # kernel_memory sets it
before=$kernel_kb
available=$(available_kb)
for n in 50 100 150 200; do
	check "50 rounds" rounds 50
	kernel_memory after
	grown=$((kernel_kb - before)) lost=$((available - $(available_kb)))
	ktap_say "in $n rounds kernel memory grew by $grown KiB, and $lost KiB less are available"
	[ "$grown" -ge $((n * 2)) ] || break
done
check "kernel memory is where it was: less than 2 KiB a round" [ "$grown" -lt $((n * 2)) ]
check "less than 4 objects of a cache are lost in a round" slabs_grown before after $((n * 4))
# Half of one of the pools, of which 20 at least are made in 50 rounds; pages in per-CPU lists come and go by less.
check "so is what is available" [ "$lost" -lt $((n * 4096 / 50)) ]
ktap_done
