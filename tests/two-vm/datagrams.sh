#!/bin/bash
# Datagrams of two machines: both ways; the network loses every packet for a while, which no sender waits for, and
# datagrams go on; one machine loses its power: a connected socket of the other one gets EHOSTUNREACH, once its link is
# lost, and datagrams go on when the machine is back.
# rows: Z7 B12 B9 E5
# params: connect_timeout_ms=4000 ack_timeout_ms=500 retry_count=6
# timeout: 300
. "$(dirname "$0")/../lib/ktap.sh"
. "$(dirname "$0")/lib.sh"

# The parameters give 7 times 0.54 s; the rest is for the emulated machines.
BOUND=15

datagrams() { echo env PYTHONDONTWRITEBYTECODE=1 python3 /zrs/tests/two-vm/datagrams.py "$@"; }
# serve HOST IP, ask HOST IP NUMBER
serve() {
	# shellcheck disable=SC2046 # a list
	start "serve$1" "$1" "listening on" $(datagrams serve "$2" 7400)
}
ask_() {
	# shellcheck disable=SC2046 # a list
	start "ask$1" "$1" "" $(datagrams ask "$2" 7400 "$3") && ended "ask$1" 90 && has "$TMP/ask$1" "$3 answered"
}

ktap_start
serve A "$ADDR_A" && serve B "$ADDR_B" || ktap_bail "servers"
check "datagrams of A are answered" ask_ A "$ADDR_B" 80
check "and those of B" ask_ B "$ADDR_A" 80

# shellcheck disable=SC2046 # a list
start flood B sending $(datagrams flood "$ADDR_A" 7400 12) || ktap_bail "a flood"
check "the network loses everything" wire_cut
sleep 1
check "and no more" wire_mend
check_ended "B sends on: some were dropped, and counted" flood 60
ktap_say "$(cat "$TMP/flood")"
check "datagrams go on" ask_ B "$ADDR_A" 40
check "in both directions" ask_ A "$ADDR_B" 40

# shellcheck disable=SC2046 # a list
start lost B sending $(datagrams lost "$ADDR_A" 7400 $((60 * SCALE))) || ktap_bail "a sender"
sleep 1
vm_kill A
check_ended "A loses its power: the connected socket gets EHOSTUNREACH" lost $BOUND
ktap_say "$(cat "$TMP/lost")"
check_within "B has no link left" 15 no_links B
check "A comes back" vm_up A
A zrs_load connect_timeout_ms=4000 ack_timeout_ms=500 retry_count=6
serve A "$ADDR_A" || ktap_bail "A's server"
check "datagrams of B are answered again" ask_ B "$ADDR_A" 80
check "and those of A" ask_ A "$ADDR_B" 80
ktap_done
