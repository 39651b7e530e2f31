#!/bin/bash
# `zrs run --udp`: programs that know of UDP alone get datagram sockets with UDP inside, by the library
# and by --static; datagrams between two of them go over to RDMA, with plain UDP at either end they stay
# UDP's; and without the module, UDP.
# rows: Z7 B1 B15
# timeout: 120
# debug: full
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
udp=(python3 "$(dirname "$0")/udp.py")
alone=(setpriv --reuid=65534 --regid=65534 --clear-groups)
check_lines B zrs run --udp -- "${udp[@]}" kinds zrs udp
check_lines B zrs run --udp --static -- "${udp[@]}" kinds zrs zrs
ktap_say "UDP's:"
check_lines B zrs run -- "${udp[@]}" kinds udp udp
check_lines B zrs run --static -- "${udp[@]}" kinds udp udp
ktap_say "of a listed program, and with no_new_privs:"
check_lines B zrs run --udp --tcp-program python3 -- "${udp[@]}" kinds udp udp
check_lines B "${alone[@]}" --no-new-privs zrs run --udp -- "${udp[@]}" kinds udp udp
ktap_say "of a program without privileges:"
check_lines B "${alone[@]}" zrs run --udp -- "${udp[@]}" kinds zrs udp
B zrs run --udp --verbose -- python3 -c 'import socket as s; s.socket(type=s.SOCK_DGRAM)' 2>"$TMP/said"
check "--verbose has a line for a socket" has "$TMP/said" "socket datagrams: ZRS beside UDP"

# exchange WAY PORT SERVER -- CLIENT...: datagrams between two programs.
exchange() {
	local way=$1 port=$2 server
	read -ra server <<<"$3"
	shift 4
	ktap_say "server: ${server[*]:-plain}, client: ${*:-plain}"
	start serve B "listening on" "${server[@]}" "${udp[@]}" serve "$ADDR_B" "$port" || ktap_bail "the server"
	check_lines A "$@" "${udp[@]}" ask "$ADDR_B" "$port" "$way"
	if [ "$way" = rdma ]; then
		check "zrs ss -u has the server" has <(B zrs ss -ua) "$ADDR_B:$port"
	fi
	# With --static a signal is handed on to the program.
	stop serve TERM
}
exchange rdma 7100 "zrs run --udp --" -- zrs run --udp --
exchange rdma 7101 "zrs run --udp --static --" -- zrs run --udp --static --
exchange udp 7102 "" -- zrs run --udp --
exchange udp 7103 "zrs run --udp --" --
exchange udp 7104 "zrs run --udp --" -- zrs run --

check "rmmod" zrs_unload
for how in "" --static; do
	ktap_say "without the module: ${how:-preload}"
	# shellcheck disable=SC2086 # no word, or one
	check_lines B zrs run --udp $how -- "${udp[@]}" kinds udp udp
done
exchange udp 7105 "zrs run --udp --" -- zrs run --udp --
ktap_done
