#!/bin/bash
# zrs mem mount: memory nodes as directories. Files are written, read, renamed and removed by path; cp from one
# node's directory to another's moves nothing through the host that types it.
# rows: M2 M5
# hosts: none
# debug: full
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/memnode.sh"

# comes TEXT WANT CMD...: the command prints that, soon: the kernel forgets inodes with a delay.
comes() {
	local text=$1 want=$2 got _
	shift 2
	for _ in $(seq 1 $((50 * PATIENCE))); do
		got=$("$@")
		[ "$got" != "$want" ] || break
		nap 0.1
	done
	check_eq "$text" "$want" "$got"
}
# lengths HOST: of the regions of its node.
lengths() { "$1" zrs mem ls --json | jq .bytes; }

ktap_start
nodes_up 64M || ktap_bail "three hosts and two nodes"
mem=$TMP/mem
mkdir "$mem"
# Other users get there.
chmod 711 "$TMP"
check_fails "a directory that is not there" "directory has to be there" A zrs mem mount "$TMP/none"
start mount A "mounted at" zrs mem mount --allow-other "$mem" || ktap_bail "the mount"
at_end "umount -l $mem 2>/dev/null"
check_eq "a directory for each node" "1 2" "$(cd "$mem" && echo *)"
size=$((5 << 20 | 123))
head -c "$size" /dev/urandom >"$TMP/file"
check "cp of a file to a node" cp "$TMP/file" "$mem/1/x"
check_eq "its size" "$size" "$(stat -c %s "$mem/1/x")"
check "and its bytes" cmp "$TMP/file" "$mem/1/x"
comes "its region has its length" "$size" lengths B
before=$(passed)
check "cp from node to node" cp "$mem/1/x" "$mem/2/y"
through=$(($(passed) - before))
ktap_say "through the host that typed it: $through bytes"
check "moves nothing through this host" [ "$through" -lt 65536 ]
check "the copy is right" cmp "$TMP/file" "$mem/2/y"
comes "and is a region of the other node" "$size" lengths C
id=$(python3 -c "import os; print(os.getxattr('$mem/2/y', 'user.zrs.storage').decode())")
check "its storage id is an attribute" A zrs mem get "$id" "$TMP/by-id"
check_fails "which is for the owner" "not permitted" setpriv --reuid 65534 --clear-groups python3 -c "import os; os.getxattr('$mem/2/y', 'user.zrs.storage')"
check "other users read the file" sh -c "setpriv --reuid 65534 --clear-groups cat '$mem/2/y' | cmp - '$TMP/file'"
check "by which it is read" cmp "$TMP/file" "$TMP/by-id"
check "append" sh -c "echo more >>'$mem/2/y'"
check "in the right place" cmp "$mem/2/y" <(cat "$TMP/file"; echo more)
check "write in the middle" dd if="$TMP/file" of="$mem/2/y" bs=1000 count=3 seek=5 conv=notrunc status=none
check "truncate" truncate -s 100000 "$mem/2/y"
{ head -c 5000 "$TMP/file"; head -c 3000 "$TMP/file"; tail -c +8001 "$TMP/file"; } | head -c 100000 >"$TMP/then"
check "all of that is there" cmp "$TMP/then" "$mem/2/y"
check "and longer again: zeroes" truncate -s 200000 "$mem/2/y"
check "are at the end" cmp <(cat "$TMP/then"; head -c 100000 /dev/zero) "$mem/2/y"
check "mv within a node" mv "$mem/2/y" "$mem/2/z"
check "mv to another node" mv "$mem/2/z" "$mem/1/z"
check_eq "names" "x z" "$(cd "$mem/1" && echo *)"
check_eq "the other directory is empty" "" "$(ls "$mem/2")"
comes "and so is its node" "" lengths C
check_fails "a file outside of all nodes" "not permitted|denied" touch "$mem/file"
check_fails "a directory" "not permitted|denied" mkdir "$mem/1/dir"
check_fails "more than the node has" "No space|quota" dd if=/dev/zero of="$mem/1/big" bs=1M count=100 status=none
rm -f "$mem/1/big"
# That region may still be there.
for _ in $(seq 1 $((50 * PATIENCE))); do
	own=$(A zrs mem put "$TMP/file" 1:1 2>/dev/null) && break
	nap 0.1
done
check "a region that is there gets a name" python3 -c "import os
open('$mem/1/own', 'w').close()
os.setxattr('$mem/1/own', 'user.zrs.storage', b'$own')"
check "and is read by it" cmp "$TMP/file" "$mem/1/own"
check "rm" rm "$mem/1/x" "$mem/1/z" "$mem/1/own"
check "frees the regions" no_regions
stop mount TERM
check "SIGTERM unmounts" sh -c "! mountpoint -q '$mem'"
ktap_done
