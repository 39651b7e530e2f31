#!/bin/bash
# A host whose link was lost has a minute to come back: its regions stay when it does, whatever it asks for then,
# and end when it does not.
# rows: M4 M5
# hosts: none
# tier: full
# timeout: 240
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/memnode.sh"

# regions: how many node 1:1 has.
regions() { B zrs mem ls | wc -l; }
regions_are() {
	local _
	for _ in $(seq 1 $((100 * PATIENCE))); do
		[ "$(regions)" != "$1" ] || return 0
		nap 1
	done
	return 1
}
# holder NAME HOST: a program of a host with a region; its commands go to $TMP/NAME.
holder() {
	mkfifo "$TMP/$1.in"
	exec {go}<>"$TMP/$1.in"
	start "$1" "$2" ready python3 "$(dirname "${BASH_SOURCE[0]}")/orphan.py" "$TMP/$1.in"
}

ktap_start
nodes_up || ktap_bail "three hosts and two nodes"
holder back A || ktap_bail "a region of A"
to_back=$go
holder away C || ktap_bail "a region of C"
check_eq "two regions" 2 "$(regions)"
port a down
port c down
echo once >&"$to_back"
check "the link of A is lost" says back failed 60
port a up
echo read >&"$to_back"
check "A is back" says back read 40
start_s=$SECONDS
check "the region of C ends, that of A stays" regions_are 1
ktap_say "after $((SECONDS - start_s)) s"
nap 5
check_eq "it stays" 1 "$(regions)"
echo read >&"$to_back"
twice() {
	local _
	for _ in $(seq 1 $((40 * PATIENCE))); do
		[ "$(grep -c "^read$" "$TMP/back")" != 2 ] || return 0
		nap 1
	done
	return 1
}
check "its bytes are there" twice
ktap_done
