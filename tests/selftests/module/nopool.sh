#!/bin/bash
# A pool that cannot be allocated: socket() fails with ENOMEM, or with TCP beside ZRS uses that; the worker
# repeats the search for memory, less and less often, and no socket() does; the module goes on, and no memory stays
# allocated. Sizes: more than the machine has, and nearly all of it, so that the kernel searches for the range.
# rows: Z2 B9
# debug: full
# module: none
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

connect=$(dirname "$0")/../tcp/connect.py
LINE="no contiguous memory for the receive pool"
ATTEMPTS=400
lines() { dmesg | grep -c "$LINE"; }
# sockets N: that many attempts; how each ended, and how often.
sockets() {
	A python3 -c '
import collections, errno, socket, sys
seen = collections.Counter()
for _ in range(int(sys.argv[1])):
    try:
        socket.socket(socket.AF_INET, socket.SOCK_STREAM, 253).close()
        seen["a socket"] += 1
    except OSError as e:
        seen[errno.errorcode[e.errno]] += 1
print(*(f"{n} {what}" for what, n in seen.items()))' "$1"
}
available_kb() { awk '/^MemAvailable:/ { print $2 }' /proc/meminfo; }

ktap_start
# Without the rate limit each search has its line, and the suppressed lines of other tests are not reported here.
log_all
before=$(lines) since=$SECONDS
check "loads with a pool of 4 TiB" zrs_load pool_mib=4194304 fallback_ms=30000 connect_timeout_ms=30000
check_fails "socket(), which waits for the first search: ENOMEM" "saw ENOMEM" A zrs-selftest hold --what socket
check "a line in the log for each of the two devices" [ "$(($(lines) - before))" -ge 2 ]
check_eq "$ATTEMPTS attempts" "$ATTEMPTS ENOMEM" "$(sockets $ATTEMPTS)"
# The worker searches at once, then after a second, two, four, and so on, also without a socket.
for _ in $(seq $((100 * PATIENCE))); do
	[ "$(($(lines) - before))" -lt 6 ] || break
	nap 0.1
done
searched=$(($(lines) - before)) most=2
for ((at = 1, pause = 1; at <= SECONDS - since + 1; pause *= 2, at += pause)); do most=$((most + 2)); done
check "searches for memory: $searched, 6 at least" [ "$searched" -ge 6 ]
check "and $most at most" [ "$searched" -le "$most" ]
# As programs get their sockets from zrs-bpf(8): one that listens, and one that connects to it.
start both B listening python3 -c '
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 254)
s.bind((sys.argv[1], 7000))
s.listen()
print("listening", flush=True)
print("protocol", s.accept()[0].getsockopt(socket.SOL_SOCKET, socket.SO_PROTOCOL), flush=True)' "$ADDR_B" ||
	ktap_bail "a listener beside TCP"
check_eq "with TCP beside ZRS: TCP, NO_RESOURCES" "no error 2 8" "$(A python3 "$connect" how "$ADDR_B" 7000)"
check "the listener takes it by TCP" says both "protocol 6"
check_ended "and ends" both
check "/dev/zrs answers" zrs stats
check_eq "no socket" 0 "$(counter sockets)"
check_eq "no pool" 0 "$(counter pool_bytes)"

# Less than the machine has, but never in one piece.
mib=$(($(awk '/^MemTotal:/ { print $2 }' /proc/meminfo) / 1024 - 64))
available=$(available_kb)
echo "$mib" >/sys/module/zrs/parameters/pool_mib
check_eq "a pool of all of the machine's $mib MiB" "1 ENOMEM" "$(sockets 1)"
check_eq "no part of one stays" 0 "$(counter pool_bytes)"
for _ in 1 2 3 4 5 6 7 8 9 10; do
	lost=$((available - $(available_kb)))
	[ "$lost" -ge 16384 ] || break
	nap 0.5
done
# The search moves other pages and fills the processors' free lists: a few MiB. A part of the pool
# would be more.
check "no memory stays allocated: $lost KiB less are available" [ "$lost" -lt 16384 ]
check "no process was killed for it" [ "$(dmesg | grep -c 'Out of memory\|oom-kill')" = 0 ]
# Without a reload.
echo 0 >/sys/module/zrs/parameters/pool_mib
check_eq "a pool that can be had" "1 a socket" "$(sockets 1)"
check "unloads" zrs_unload
check "loads with a pool that can be had" zrs_load
check "socket()" A zrs-selftest hold --what socket
ktap_done
