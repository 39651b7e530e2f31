#!/bin/bash
# Regions of memory nodes as files: put and get of all sizes, a copy from one node to another at the
# word of a third host that none of the bytes pass, and the errors.
# rows: M1 M2 M3 M5
# dma: coherent
# hosts: none
# debug: full
# timeout: 180
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/memnode.sh"

# more NAME TEXT COUNT: it says that more often than COUNT times.
more() {
	local _
	for _ in $(seq 1 $((400 * PATIENCE))); do
		[ "$(grep -c "$2" "$TMP/$1")" -le "$3" ] || return 0
		nap 0.05
	done
	return 1
}

ktap_start
here=$(dirname "$0")
nodes_up || ktap_bail "three hosts and two nodes"
head -c 5000123 /dev/urandom >"$TMP/file"
want=$(sum "$TMP/file")
r=$(A zrs mem put "$TMP/file" 1:1 2>"$TMP/err") || { cat "$TMP/err"; ktap_bail "put"; }
ktap_pass "a file is put to a node"
check "and read back" A zrs mem get "$r" "$TMP/back"
check_eq "unchanged" "$want" "$(sum "$TMP/back")"
before=$(passed)
c=$(A zrs mem cp "$r" 1:2 2>"$TMP/err") || { cat "$TMP/err"; ktap_bail "cp"; }
through=$(($(passed) - before))
ktap_say "through the requester: $through bytes"
check "the copy's bytes do not pass the requester" [ "$through" -gt 0 -a "$through" -lt 65536 ]
# Whatever is copied, 64 KiB and 256 bytes for each MiB may pass: 320 KiB for a GiB.
before=$(passed)
for _ in 1 2 3 4; do A zrs mem cp "$r" "$c" >/dev/null 2>"$TMP/err" || ktap_fail "a further copy: $(cat "$TMP/err")"; done
through=$(($(passed) - before)) most=$(may_pass $((4 * 5000123)))
ktap_say "through the requester for four more: $through bytes, of $most"
check "no more than 320 KiB a GiB pass it" [ "$through" -le "$most" ]
start copier A copying python3 "$here/copier.py" "$r" "$c" || ktap_bail "copies"
before=$(grep -c copying "$TMP/copier") pinned=0
for _ in $(seq 20); do
	n=$(zrs stats --json | jq .pages_pinned)
	[ "$n" -le "$pinned" ] || pinned=$n
	nap 0.02
done
check_eq "pages of programs that are pinned while copies run" 0 "$pinned"
check "which go on" more copier copying "$before"
stop copier
check "the copy is read" A zrs mem get "$c" "$TMP/copy"
check_eq "and right" "$want" "$(sum "$TMP/copy")"
check "by relay" A zrs mem cp --relay "$r" "$c"
check "its own host reads it" C zrs mem get "$c" "$TMP/own"
check_eq "and it is right, too" "$want" "$(sum "$TMP/own")"
check "free" A zrs mem free "$r"
check_fails "a freed region" "was freed" A zrs mem get "$r" "$TMP/none"
check_fails "a node that is in no directory" "no host serves this node" A zrs mem alloc 1:9 1M
check_fails "more than the node has" "no room|its share" A zrs mem alloc 1:1 1G
check_lines A python3 "$here/files.py" "$c"
ktap_done
