#!/bin/bash
# Memory links between hosts that have a key for each other, between the requester and a node and between two nodes: the
# same key at both makes them, another one or a missing one refuses them, and a second key takes the place of the
# first; each is counted and logged, links without a proof end, and other hosts' links go on.
# rows: B16 M5
# hosts: none
# timeout: 180
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/memnode.sh"
. "$(dirname "$0")/../../lib/keys.sh"

# count NAME: links with that end of their proof, in the whole machine.
count() { A zrs key list --counts | tail -1 | grep -oE "(: |, )$1 [0-9]+" | grep -oE "[0-9]+$"; }
# grown NAME BEFORE: there are more of them; the other host may count later.
grown() {
	local n _
	for _ in $(seq 1 $((50 * PATIENCE))); do
		n=$(count "$1")
		[ -n "$n" ] && [ "$n" -gt "$2" ] && return 0
		nap 0.1
	done
	return 1
}
# logged TEXT: the log has that text.
logged() { dmesg | grep -q "$1"; }
# reads: host A reads from node 1:1 what is there.
reads() { A zrs mem get "$r" "$TMP/back" 2>"$TMP/err" && cmp -s "$TMP/file" "$TMP/back"; }
# puts NODE: host A reaches the node.
puts() { A zrs mem put "$TMP/file" "$1" >"$TMP/last" 2>"$TMP/err"; }
# copies: node 1:1 copies to node 1:2, which has the bytes then.
copies() {
	A zrs mem cp "$r" "$c" 2>"$TMP/err" && A zrs mem get "$c" "$TMP/copy" 2>"$TMP/err" &&
		cmp -s "$TMP/file" "$TMP/copy"
}
# add HOST ADDR NAME SECRET
add() { "$1" zrs key add "$2" "$3" --file "$TMP/$4"; }
# cut HOST: ends all links of the host.
cut() { "$1" zrs peers deny any && "$1" zrs peers flush; }
# denied TEXT COUNTERS CMD...: the command is refused, in both hosts for the reasons said.
denied() {
	local text=$1 names=$2 name
	local -A before
	shift 2
	while read -r name; do before[$name]=$(count "$name"); done <<<"${names//;/$'\n'}"
	check_fails "$text" "does not allow this" "$@"
	for name in "${!before[@]}"; do
		check "$text: counted as $name" grown "$name" "${before[$name]}"
	done
}

ktap_start
log_all
head -c 300000 /dev/urandom >"$TMP/file"
for s in one two wrong; do
	secret >"$TMP/$s"
	chmod 600 "$TMP/$s"
done
nodes_up || ktap_bail "three hosts and two nodes"
# A host that does nothing for a while ends its links.
start nodeA A "serving node 1:3" zrs mem serve --node 1:3 --size 1M --open || ktap_bail "a node of the requester"
at_end "flush_keys A B C; A zrs peers flush; B zrs peers flush"
needs_keyrings A
r=$(A zrs mem put "$TMP/file" 1:1 2>"$TMP/err") || { cat "$TMP/err"; ktap_bail "put"; }
c=$(A zrs mem cp "$r" 1:2 2>"$TMP/err") || { cat "$TMP/err"; ktap_bail "cp"; }

# The links are up without a proof: a key ends them.
check "a key of the requester for the node's host" add A "$ADDR_B" m one
denied "the node's host has none" "no key here;no key there" A zrs mem get "$r" "$TMP/back"
check "another host's link goes on" puts 1:2
check "the same key at both" add B "$ADDR_A" m one
proved=$(count proved)
check "the requester reads" reads
check_eq "after a proof at both ends" "$((proved + 2))" "$(count proved)"
check "a new region, by the same link" puts 1:1
check_eq "that needs no other proof" "$((proved + 2))" "$(count proved)"
check "the requester has no key any more" A zrs key remove "$ADDR_B"
check "a link that is up stays" reads
check_eq "as it is" "$((proved + 2))" "$(count proved)"
cut A
denied "the next one needs it" "no key here;no key there" A zrs mem get "$r" "$TMP/back"
check "another key" add A "$ADDR_B" m wrong
denied "is wrong" "another key;ended by peers" A zrs mem get "$r" "$TMP/back"
denied "and writes nothing" "another key" A zrs mem put "$TMP/file" 1:1
check "the key of both in its place" add A "$ADDR_B" m one
check "is right" reads

# A second key takes the place of the first.
check "the next key of the node's host" add B "$ADDR_A" next two
for step in "add A $ADDR_B next two" "A zrs key remove $ADDR_B m" "B zrs key remove $ADDR_A m"; do
	proved=$(count proved)
	check "a link that is up stays" reads
	check "$step" $step
	check "it reads without another proof" [ "$(reads && count proved)" = "$proved" ]
	cut A
	check "the next link is made" reads
	check_eq "by a proof" "$((proved + 2))" "$(count proved)"
done

# A copy between the nodes: the first node makes the link.
check "a key of the first node's host for the other one's" add B "$ADDR_C" n one
denied "there is no copy" "no key here;no key there" A zrs mem cp "$r" "$c"
check "the requester reaches the one" puts 1:1
check "and the other" puts 1:2
check "a key of the second node's host" add C "$ADDR_B" n wrong
denied "is another one" "another key;ended by peers" A zrs mem cp "$r" "$c"
check "the same at both" add C "$ADDR_B" n one
proved=$(count proved)
check "a copy" copies
check_eq "between hosts that have proved their key" "$((proved + 2))" "$(count proved)"
check "the first node's host has none any more" B zrs key remove "$ADDR_C"
cut B
denied "the second one's alone" "no key here;no key there" A zrs mem cp "$r" "$c"
check "no key is left" C zrs key remove "$ADDR_B"
check "a copy without one" copies
for text in "a key is missing here" "it has no key for this host" "its key is another one" "its log says why"; do
	check "the log says: $text" logged "no link with .*: .*$text"
done
ktap_done
