#!/bin/bash
# One device of several gets no memory for its pool: socket() succeeds, in the network namespace of that device too, and the
# others are used. connect() over that device is ENOMEM. It has its pool, without a socket(), when there is memory again.
# rows: Z2 B9 B17
# hosts: own
# module: none
# device: strict
# timeout: 90
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

# The name of the device that has no memory (tests/vm/build-device).
NOMEM=/sys/module/rdma_rxe/parameters/nomem
pools() { zrs pool --json | jq -r '[.pools[].device] | sort | join(" ")'; }
# said DEVICE: whether the log says that it has none; the pools are made one after the other.
said() { dmesg | grep -q "$1: no contiguous memory for the receive pool" && echo yes; }
cat >"$TMP/connect.py" <<'PY'
import errno, socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 253)
try:
    s.connect((sys.argv[1], 7000))
except OSError as e:
    print(errno.errorcode[e.errno])
PY

ktap_start
log_all
at_end "echo >$NOMEM"
A ip link add da type dummy && A ip addr add 10.79.0.1/24 dev da && A ip link set da up &&
	A rdma link add rxeD type rxe netdev da || ktap_bail "a second device of A"
at_end "rdma link delete rxeD"

echo rxeD >$NOMEM
check "loads" zrs_load
at_end zrs_unload
check "socket() beside a device without a pool" A zrs-selftest hold --what socket
check_eq "the others have theirs" "rxeA rxeB" "$(pools)"
check_becomes "the log says which one has none" yes said rxeD
check_pair "bulk data by the device that has one" xfer --sizes 1,5000,300000 --both

# The only device of host B; rxeD, which has failed for long, would be tried again late.
rdma link delete rxeD
check "rdma link delete" rdma link delete rxeB
echo rxeB >$NOMEM
check "a device of B, without a pool" B rdma link add rxeB type rxe netdev vb
for host in A B; do
	check "socket() in $host" "$host" zrs-selftest hold --what socket
done
check_becomes "the log says so" yes said rxeB
check "it has none" sh -c "! zrs pool --json | grep -q '\"device\":\"rxeB\"'"
check_eq "connect() over it" ENOMEM "$(B python3 "$TMP/connect.py" "$ADDR_A")"
echo >$NOMEM
check_becomes "all have their pools when there is memory again" "rxeA rxeB" pools
check_pair "bulk data by it" xfer --sizes 1,5000,300000 --both
ktap_done
