#!/bin/bash
# Streams between two machines over software iWARP: every size, by each way of sending and receiving, with
# bytes that are compared at the end; a file each way, by its hash; memory that is changed as soon as its
# completion says so; many connections at once; round trips. siw carries all of it.
# rows: B17 Z1 Z4 B2 B4
# params: connect_timeout_ms=4000
# timeout: 180
. "$(dirname "$0")/../lib/ktap.sh"
. "$(dirname "$0")/../two-vm/lib.sh"
. "$(dirname "$0")/lib.sh"

ktap_start
carrier_begin
check_pair "every size, both ways" xfer --sizes 1,63,4032,4096,4097,16384,300000,4M --both
check_pair "the same by the ring" xfer --sizes 1,4097,16385,300000,4M --both --ring
check_pair "the same non-blocking" xfer --sizes 1,4097,300000,1M --both --nonblock
check "siw has carried it, and TCP nothing" carried_by_siw 10000000

# The sender's memory is given back while TCP may still have it: a wrong byte shows that.
carrier_begin
for how in "" --ring; do
	for with in "" --zerocopy; do
		start to B "listening on" zrs-selftest stream-recv --listen "$ADDR_B:7100" --expect eof --at-least 16M $how ||
			ktap_bail "a receiver"
		check "A sends 16 MiB${with:+ with $with}" A zrs-selftest stream-send "$ADDR_B:7100" --bytes 16M --expect eof $with
		check_ended "every byte is right${how:+, in the ring}" to
	done
done
check "siw has carried it" carried_by_siw 64000000

# Datagrams.
start dgrams B bound python3 -c '
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 253)
s.bind((sys.argv[1], 7150))
print("bound", flush=True)
seen = sorted({s.recv(20000)[0] for _ in range(10)})
print(seen, flush=True)' "$ADDR_B" || ktap_bail "a socket for datagrams"
check "A sends datagrams of 20000 bytes" A python3 -c '
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 253)
s.connect((sys.argv[1], 7150))
try:
    for n in range(20):
        s.send(bytes([n]) * 20000)
        time.sleep(0.1)
except ConnectionRefusedError:
    pass # the other end has enough' "$ADDR_B"
check_ended "ten of them arrive" dgrams

# A file each way; its hash is that of the file.
for from in A B; do
	if [ "$from" = A ]; then to=B addr=$ADDR_B; else to=A addr=$ADDR_A; fi
	carrier_begin
	"$from" eval 'head -c 5000001 /dev/urandom >/tmp/sent'
	start recv "$to" "listening on" zrs recv --listen "$addr:7300" --output /tmp/received || ktap_bail "zrs recv"
	check "a file goes from $from to $to" "$from" zrs send /tmp/sent "$addr:7300"
	check_ended "zrs recv has it" recv
	check_eq "its hash is the same in $to" "$("$from" sha256sum /tmp/sent | cut -d' ' -f1)" \
		"$("$to" sha256sum /tmp/received | cut -d' ' -f1)"
	check "siw has carried it" carried_by_siw 5000001
done

start bench B "listening on" zrs bench --server "$ADDR_B:7400" || ktap_bail "zrs bench"
carrier_begin
check "zrs bench: round trips and throughput" A zrs bench --client "$ADDR_B:7400" --carriers zrs \
	--only latency,throughput --sizes 64,1M --messages 100 --rounds 1
check "and 500 connections, one after the other and at once" A zrs bench --client "$ADDR_B:7400" --carriers zrs \
	--only connect,hold --connections 500 --quick --rounds 1
check "siw has carried it" carried_by_siw 100000000
stop bench
start ping B "listening on" zrs ping --listen "$ADDR_B:7500" || ktap_bail "zrs ping"
check "zrs ping" A zrs ping "$ADDR_B:7500" --count 5
stop ping
ktap_done
