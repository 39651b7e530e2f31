#!/bin/bash
# An older module in A, on the kernel series of its time, and this one in B: they link and carry
# data both ways, with the programs and libraries of either side on either module, refuse by name what the
# older one does not have, and survive each other's end.
# rows: Z1 Z3 B9 C6
# params: connect_timeout_ms=4000
# timeout: 600
. "$(dirname "$0")/../lib/ktap.sh"
. "$(dirname "$0")/lib.sh"

OLDER=/zrs/build/older
older_load() { A eval "ZRS_KO=$OLDER/module/zrs.ko zrs_load connect_timeout_ms=4000"; }
# agreed: version and features of B's links, the accepted ones first.
agreed() {
	B grep -oE 'accepted=[a-z]+ version=[0-9]+ features=[0-9a-fx]+' /sys/kernel/debug/zrs/links | sort -ru | paste -sd' '
}

ktap_start
rc=0
series=$("$(dirname "$0")/build-older" 2>&1) || rc=$?
if [ "$rc" = 4 ]; then
	ktap_skip "an older module" "$series"
	ktap_done
fi
[ "$rc" = 0 ] || ktap_bail "the older ZRS does not build: $series"

check "this module leaves A" A module_out
at_end "vm_kill A; vm_up A && A zrs_load"
vm_kill A
check "A comes up with kernel $series" eval "KSERIES=$series ZRS_KERNEL=stock vm_up A"
check "the older module loads" older_load

# The new programs at both ends, then the old ones.
for of in new old; do
	path=
	[ "$of" = new ] || path=$OLDER/userspace/release/
	# A makes the link.
	PROGRAM=${path}zrs-selftest
	check_pair "$of programs, A connects: every size, both ways" xfer --sizes 1,4096,4097,16384,300000,4M --both
	check_pair "the same by the ring" xfer --sizes 1,4097,300000,4M --both --ring
	check_pair "the same non-blocking" xfer --sizes 1,4097,300000,1M --both --nonblock
	# B does.
	start "recv$of" A "listening on" "$PROGRAM" stream-recv --listen "$ADDR_A:7100" --expect eof --at-least 8M --ring &&
		start "send$of" A "listening on" "$PROGRAM" stream-send --listen "$ADDR_A:7101" --bytes 8M --expect eof ||
		ktap_bail "$of programs in A"
	check "B connects and sends" B "$PROGRAM" stream-send "$ADDR_A:7100" --bytes 8M --expect eof
	check_ended "every byte has come" "recv$of"
	check "B connects and receives" B "$PROGRAM" stream-recv --connect "$ADDR_A:7101" --expect eof --at-least 8M
	check_ended "every byte has gone" "send$of"
	# A file each way.
	for to in A B; do
		if [ "$to" = A ]; then from=B addr=$ADDR_A; else from=A addr=$ADDR_B; fi
		start "file$of$to" "$to" listening "${path}zrs" recv --listen "$addr:7102" --output "/tmp/$of" ||
			ktap_bail "zrs recv in $to"
		check "a file goes from $from to $to" "$from" "${path}zrs" send "$OLDER/module/zrs.ko" "$addr:7102"
		check_ended "zrs recv has it" "file$of$to"
		check "it is the same" "$to" cmp "$OLDER/module/zrs.ko" "/tmp/$of"
	done
	for host in A B; do
		check "the $of zrs stats in $host" "$host" "${path}zrs" stats
		check "the $of zrs links in $host" "$host" "${path}zrs" links
	done
done
unset PROGRAM
# Links go with the last socket.
start serveA A "listening on" zrs-selftest serve "$ADDR_A:7300" &&
	start serveB B "listening on" zrs-selftest serve "$ADDR_B:7300" &&
	start holdA A holding zrs-selftest hold --what conn --addr "$ADDR_B:7300" &&
	start holdB B holding zrs-selftest hold --what conn --addr "$ADDR_A:7300" ||
	ktap_bail "a connection each way"
check_eq "both links have version 1, and no feature" \
	"accepted=true version=1 features=0x0 accepted=false version=1 features=0x0" "$(agreed)"
for name in holdA holdB; do stop "$name"; done

# What the older module does not have is refused by name.
errors() {
	local host
	for host in A B; do
		"$host" zrs stats --json | tr ',{}' '\n' | sed -n 's/^"protocol_errors"://p'
	done | paste -sd' '
}
before=$(errors)
start beside B "listening on" zrs-selftest stream-send --listen "$ADDR_B:7301" --bytes 64M --expect eof &&
	start sink A "" zrs-selftest stream-recv --connect "$ADDR_B:7301" --expect eof --at-least 64M ||
	ktap_bail "a stream beside"
# The first ones wait for a link, whose hello says that the host takes none.
check_eq "datagrams to a host with the older module" EHOSTUNREACH "$(B python3 -c '
import errno, socket, sys, time
s, end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 253), time.monotonic() + 60
try:
    s.connect((sys.argv[1], 7302))
    while time.monotonic() < end:
        s.send(b"datagram")
        time.sleep(0.1)
except OSError as e:
    print(errno.errorcode[e.errno])
' "$ADDR_A")"
check_fails "zrs rules with the older module" "older than this command, and has no rules" A zrs rules add tcp any
check_fails "zrs mem with the older module" "older than this command|does not know this" A zrs mem nodes add 1 "$ADDR_B"
# In mode AUTO: to a ZRS program there by ZRS, to one of TCP by TCP.
carried() {
	B python3 -c '
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 253)
s.setsockopt(0x5a52, 3, 1)
s.connect((sys.argv[1], int(sys.argv[2])))' "$ADDR_A" "$1"
}
check "connect in mode AUTO to a ZRS program of that host" carried 7300
start plain A ready python3 -c 'import socket
s = socket.create_server(("", 7303))
print("ready", flush=True)
s.accept()[0].recv(1)' || ktap_bail "a TCP server"
check "and to a TCP program" carried 7303
check_ended "it was a TCP connection" plain
check_ended "the stream beside goes on: all has gone" beside
check_ended "and has come" sink
check_eq "no message broke the protocol" "$before" "$(errors)"
for name in serveA serveB; do stop "$name"; done

# Each in turn goes, with connections open; and comes back.
for host in A B; do
	if [ "$host" = A ]; then other=B addr=$ADDR_A; else other=A addr=$ADDR_B; fi
	start "in$host" "$host" "listening on" zrs-selftest stream-recv --listen "$addr:7200" --expect eof &&
		start "to$host" "$other" sending zrs-selftest stream-send "$addr:7200" --expect epipe,reset ||
		ktap_bail "a connection from $other to $host"
	check "$host's programs are killed" "$host" jobs_kill
	check "$host's module goes" "$host" module_out
	check_ended "$other's sender gets an error" "to$host"
	if [ "$host" = A ]; then again=older_load; else again="B zrs_load connect_timeout_ms=4000"; fi
	check "$host's module comes back" eval "$again"
	start "again$host" "$host" "listening on" zrs-selftest serve "$addr:7201" || ktap_bail "serve in $host"
	check_within "$other connects to $host" 15 "$other" eval \
		"zrs-selftest poll --peer $addr:7201 --local \$ADDRESS --refused $addr:7999"
	stop "again$host"
done
check_pair "and data goes" xfer --sizes 1,5000,300000 --both

# The runner looks at A when it has its own kernel again.
check "A's programs end" A jobs_kill
check "nothing is left in A, the older module unloads" A module_out
check "A's kernel log is clean" A log_take
ktap_done
