#!/bin/bash
# A port that comes up with another rate, or has another rate by what the device says (tests/lib/rdmaevent): the pools'
# budget follows it, without another pool. The device is
# Soft-RoCE on a TAP interface, whose rate can be set, and whose carrier goes with the program behind it.
# rows: Z2 C2 B17
# test-module: tests/lib/rdmaevent
# hosts: own
# params: pool_mib=0 residency_us=2000 cache_kib=131072
# timeout: 60
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

cat >"$TMP/carrier.py" <<'PY'
import fcntl, os, struct, sys, time
# TUNSETIFF with IFF_TAP | IFF_NO_PI.
fd = os.open("/dev/net/tun", os.O_RDWR)
fcntl.ioctl(fd, 0x400454CA, struct.pack("16sH22x", b"tap0", 0x1002))
print("carrier", flush=True)
time.sleep(600)
PY
# rate GBIT: that of all devices of the cache in Gb/s is GBIT more than before.
base=0
pools() { zrs pool --json | jq -c '[.pools[] | [.device, .bytes]]'; }
rate() { [ $(($(cache rate) - base)) = $(($1 * 125)) ]; }
wait_rate() {
	local _
	for _ in $(seq 1 $((20 * PATIENCE))); do
		rate "$1" && return
		nap 0.2
	done
	ktap_say "$(cache rate), $base before"
	return 1
}

ktap_start
modprobe tun 2>/dev/null
if ! A ip tuntap add tap0 mode tap; then
	ktap_skip "a port with another rate" "this kernel has no TAP interfaces"
	ktap_done
fi
at_end "ip -n zrsA link delete tap0"
check "a socket" A zrs-selftest hold --what socket
base=$(cache rate) pages=$(cache bytes)
A ip link set tap0 up
check "a rate of 10 Gb/s" A ethtool -s tap0 speed 10000 duplex full autoneg off
check "the interface's device" A rdma link add rxe_tap type rxe netdev tap0
at_end "rdma link delete rxe_tap"
check "a socket, for its pool" A zrs-selftest hold --what socket
check "a pool for 10 Gb/s" wait_rate 10
pools=$(pools)
check "a rate of 100 Gb/s" A ethtool -s tap0 speed 100000 duplex full autoneg off
nap 0.5
check "which is not looked at while the port is down" rate 10
start carrier A carrier python3 "$TMP/carrier.py" || ktap_bail "the carrier"
check "a pool for 100 Gb/s when the port has come up" wait_rate 100
check "the budget has grown: $(cache bytes) bytes, $pages before" [ "$(cache bytes)" -gt "$pages" ]
insmod /zrs/build/tests/lib/rdmaevent/rdmaevent.ko || ktap_bail "rdmaevent.ko"
at_end "rmmod rdmaevent"
check "a rate of 25 Gb/s" A ethtool -s tap0 speed 25000 duplex full autoneg off
nap 0.5
check "which is not looked at until the device says so" rate 100
check "the device says so" A sh -c "echo tap0 >/sys/module/rdmaevent/parameters/speed"
check "a pool for 25 Gb/s" wait_rate 25
check_eq "no other pool" "$pools" "$(pools)"
check "rdma link delete" rdma link delete rxe_tap
check "the device's rate is gone" wait_rate 0
check_eq "and the budget as before" "$pages" "$(cache bytes)"
ktap_done
