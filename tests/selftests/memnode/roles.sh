#!/bin/bash
# The messages on the network when memory is allocated, written and copied: with all roles at one host, with two hosts, and
# with three: a host asks the owning processing node, which asks its memory node; the copy's source writes to the target
# and passes on the target's answer.
# rows: M1 M2 M3
# dma: coherent
# hosts: none
# timeout: 90
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/memnode.sh"

here=$(dirname "$0")
L() { ip netns exec zrsL "$@"; }
# heard CMD...: what passes the bridge while the command runs, in $HEARD; links are up already.
heard() {
	start sniffer L listening python3 "$here/roles.py" || return 1
	"$@" >"$TMP/result" || return 1
	nap 0.3
	stop sniffer TERM
	HEARD=$(grep '>' "$TMP/sniffer")
	while read -r line; do ktap_say "$line"; done <<<"$HEARD"
}
# in_order TEXT LINE...: the lines were heard in this order; others may be between.
in_order() {
	local text=$1 rest=$HEARD line
	shift
	for line; do
		case $'\n'$rest$'\n' in
		*$'\n'"$line"$'\n'*) rest=$'\n'$rest$'\n' rest=${rest#*$'\n'"$line"$'\n'} ;;
		*) ktap_fail "$text: no '$line' at its place"; return ;;
		esac
	done
	ktap_pass "$text"
}
# nothing_of TEXT PATTERN: no such line was heard.
nothing_of() {
	if grep -E "$2" <<<"$HEARD" >"$TMP/out"; then ktap_fail "$1: $(head -1 "$TMP/out")"; else ktap_pass "$1"; fi
}
write() { python3 -c 'import sys; print("x" * int(sys.argv[1]), end="")' "$1" >"$TMP/bytes" && "$2" zrs mem put "$TMP/bytes" "$3"; }

ktap_start
nodes_up || ktap_bail "three hosts and two nodes"
start broker C "allocating" zrs mem broker --for 1:1 --quota 8M --open || ktap_bail "a broker"
# Makes the links now: their own messages do not matter here.
r=$(A zrs mem alloc 1:1 1M) && s=$(A zrs mem alloc 1:2 1M) && A zrs mem cp "$s" "$r" && A zrs mem free "$r" ||
	ktap_bail "links"

all_at_one() { B zrs mem alloc 1:1 1M >"$TMP/own" && write 300000 B "$(cat "$TMP/own")" && B zrs mem cp "$(cat "$TMP/own")" 1:1; }
check "one host: it allocates, writes and copies at its own node" heard all_at_one
nothing_of "one host: nothing of that is on the network" "ask|answer|WRITE|READ"

heard A zrs mem alloc 1:1 1M || ktap_bail "alloc"
r=$(cat "$TMP/result")
in_order "two hosts: the processing node asks the memory node" "A>B ask ALLOC" "B>A answer ALLOC"
nothing_of "two hosts: and nobody else" "C>|>C"
heard write 300000 A "$r" || ktap_bail "write"
in_order "two hosts: it writes, and the node acknowledges" "A>B ask OPEN" "B>A answer OPEN" "A>B WRITE" "A>B ask WROTE" "B>A answer WROTE"
nothing_of "two hosts: the node reads and writes nothing of it" "B>A (WRITE|READ)"
heard A zrs mem get "$r" "$TMP/back" || ktap_bail "read"
in_order "two hosts: it reads" "A>B READ"
nothing_of "two hosts: and nobody writes" "WRITE"

# The owner of B's memory is C; A has bytes at C's memory node.
heard A zrs mem alloc 1:1 1M --via 1:2 || ktap_bail "alloc by the broker"
r=$(cat "$TMP/result")
in_order "three hosts: memory request, memory allocation" \
	"A>C ask ALLOC" "C>B ask ALLOC" "B>C answer ALLOC" "C>A answer ALLOC"
nothing_of "three hosts: the requester asks the owner only" "A>B"
heard write 300000 A "$r" || ktap_bail "a write by a plain host"
in_order "three hosts: a plain host writes to the memory node" "A>B WRITE" "A>B ask WROTE" "B>A answer WROTE"
nothing_of "three hosts: and the owner is not asked" "C>|>C"
write 300000 A "$s" || ktap_bail "write"
heard A zrs mem cp "$s" "$r" || ktap_bail "copy"
in_order "three hosts: the copy operation, the WRITEs, and the acknowledgement that the source passes on" \
	"A>C ask COPY" "C>B WRITE" "C>B ask WROTE" "B>C answer WROTE" "C>A answer COPY"
nothing_of "three hosts: the requester moves nothing" "A.*(WRITE|READ)|(WRITE|READ).*A|>A (WRITE|READ)"
A zrs mem get "$r" "$TMP/back" && head -c 300000 "$TMP/back" >"$TMP/part"
check "three hosts: the bytes are there" cmp "$TMP/part" "$TMP/bytes"
ktap_done
