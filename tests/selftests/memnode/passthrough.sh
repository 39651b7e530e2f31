#!/bin/bash
# zrs mem mount --passthrough: files are read while the server is stopped, which it cannot be without the option; files that change
# while they are read; cp between nodes passes nothing; regions end with their files.
# rows: M2 M5
# hosts: none
# debug: no
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/memnode.sh"

passing=$(dirname "$0")/passthrough.py
ktap_start
nodes_up 64M || ktap_bail "three hosts and two nodes"
mem=$TMP/mem
mkdir "$mem"
at_end "umount -l $mem 2>/dev/null"
head -c $((5 << 20 | 123)) /dev/urandom >"$TMP/file"

start mount A "mounted at" zrs mem mount "$mem" || ktap_bail "the mount"
cp "$TMP/file" "$mem/1/x"
check "without the option, a read waits for the server" python3 "$passing" served "$mem/1/x" "${PID[mount]}"
stop mount TERM

start mount A "mounted at" zrs mem mount --passthrough "$mem" || ktap_bail "the mount with the option"
check "cp to a node" cp "$TMP/file" "$mem/1/x"
check "a read while the server is stopped" python3 "$passing" stopped "$mem/1/x" "${PID[mount]}"
check "the bytes" cmp "$TMP/file" "$mem/1/x"
check "with O_DIRECT, too" cmp "$TMP/file" <(dd if="$mem/1/x" iflag=direct bs=64K status=none)
before=$(passed)
check "cp from node to node" cp "$mem/1/x" "$mem/2/y"
through=$(($(passed) - before))
ktap_say "through the host that typed it: $through bytes"
check "moves nothing through this host" [ "$through" -lt 65536 ]
check "the copy is right" cmp "$TMP/file" "$mem/2/y"
check_lines python3 "$passing" changes "$mem/1/z"
region=$(A zrs mem put "$TMP/file" 1:1 2>/dev/null) && reads=$(A zrs mem key "$region" --rights r) || ktap_bail "a region"
check "a region that may be read gets a name" python3 -c "import os
open('$mem/1/own', 'w').close()
os.setxattr('$mem/1/own', 'user.zrs.storage', b'$reads')"
check "and is read while the server is stopped" python3 "$passing" stopped "$mem/1/own" "${PID[mount]}"
check_fails "it cannot be written while it is read" "Permission denied" sh -c "exec 3<'$mem/1/own' 4>>'$mem/1/own'"
check "it is read all the same" cmp "$TMP/file" "$mem/1/own"
A zrs mem free "$region"
rm "$mem/1/x" "$mem/1/z" "$mem/2/y"
check "files that are removed free their regions" no_regions
stop mount TERM
check "SIGTERM unmounts" sh -c "! mountpoint -q '$mem'"
ktap_done
