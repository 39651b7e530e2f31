#!/bin/bash
# A device that reports a fatal error, and completes no work request any more: all connections of its links end at
# once, not when a heartbeat is missed. A test's module says so (tests/lib/rdmaevent), of a device that still
# works: so the peer learns it, and new connections can be made.
# rows: B9 E5
# test-module: tests/lib/rdmaevent
# params: heartbeat_ms=0 dead_ms=600000
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
log_all
insmod /zrs/build/tests/lib/rdmaevent/rdmaevent.ko || ktap_bail "rdmaevent.ko"
at_end "rmmod rdmaevent"
fail() { "$1" sh -c "echo $2 >/sys/module/rdmaevent/parameters/fatal"; }
said() { dmesg | grep -c "lost: its device has failed"; }
port=7000
for device in "A va" "B vb"; do
	for i in 1 2 3; do
		port=$((port + 1))
		start "receiver$i" B "listening on" zrs-selftest stream-recv --listen "$ADDR_B:$port" --expect reset &&
			start "sender$i" A sending zrs-selftest stream-send "$ADDR_B:$port" --expect reset &&
			says "receiver$i" receiving || ktap_bail "traffic"
	done
	logged=$(said)
	# shellcheck disable=SC2086 # two words
	check "the device of $device fails" fail $device
	for i in 1 2 3; do
		check_ended "ECONNRESET for sender $i" "sender$i"
		check_ended "what arrived, then ECONNRESET for receiver $i" "receiver$i"
	done
	check "the log says why" test "$(said)" -gt "$logged"
	check_pair "a new connection" xfer --sizes 1,5000,300000 --both
done
ktap_done
