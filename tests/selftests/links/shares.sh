#!/bin/bash
# Links of users leave some to others: a user who keeps connecting to hosts that do not answer takes
# no blocks, and the blocks of a last link are for the administrator and for peers.
# rows: B19 E5 Z2
# hosts: own
# params: blocks=128 link_credit=32 connect_timeout_ms=6000
# timeout: 60
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

# as UID NAME TEXT CMD...: starts it as this user of A, and it says TEXT.
as() {
	local uid=$1 name=$2 text=$3
	shift 3
	start "$name" A "$text" setpriv --reuid "$uid" --clear-groups zrs-selftest "$@"
}
# opens UID NAME ADDR: this user connects to B by this address.
opens() { as "$1" "$2" "opened 1" fill --connect "$3:7000" --conns 1 && ! has "$TMP/$2" "then"; }

ktap_start
silent=()
for n in $(seq 101 116); do
	# The address resolves, and no host takes what is sent there.
	ip -n zrsA neigh add "10.77.0.$n" lladdr 02:00:00:00:77:01 dev va nud permanent || ktap_bail "a neighbour"
	silent+=("10.77.0.$n:7000")
done
for n in 21 22 23; do
	ip -n zrsB addr add "10.77.0.$n/24" dev vb || ktap_bail "another address of B"
done
start listener B "opened 0" zrs-selftest fill --listen 0.0.0.0:7000 || ktap_bail "a listener"

check "a user connects to sixteen hosts that do not answer" as 65534 storm "began 16" storm "${silent[@]}"
# All of these links ask their peers by now.
nap 0.5
check "another user connects to a host that does" opens 1234 other "$ADDR_B"
check "and so does root" opens 0 root 10.77.0.21
stop storm

check "a user's third link" opens 1234 third 10.77.0.22
check "the last one is not for users" \
	as 1234 fourth "opened 0, then connect: ENOMEM" fill --connect 10.77.0.23:7000 --conns 1
check "but for root" opens 0 last 10.77.0.23
ktap_done
