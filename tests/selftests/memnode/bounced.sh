#!/bin/bash
# Nodes on devices whose DMA is not coherent, with bounce pages between device and memory: there are no remote keys,
# and regions are written, read and copied by messages.
# rows: M1 M2 M3 B17
# hosts: none
# device: strict
# debug: full
# timeout: 200
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/memnode.sh"

ktap_start
nodes_up 64M || ktap_bail "three hosts and two nodes"
head -c 3000077 /dev/urandom >"$TMP/file"
want=$(sum "$TMP/file")
r=$(A zrs mem put "$TMP/file" 1:1) || ktap_bail "put"
check_eq "a region that is written and read" "$want" "$(A zrs mem get "$r" "$TMP/back" && sum "$TMP/back")"
check_eq "and by its node's host" "$want" "$(B zrs mem get "$r" "$TMP/back" && sum "$TMP/back")"
before=$(passed)
s=$(A zrs mem cp "$r" 1:2) || ktap_bail "a copy"
check "its copy passes not through the requester" [ $(($(passed) - before)) -lt 65536 ]
check_eq "and is right" "$want" "$(A zrs mem get "$s" "$TMP/back" && sum "$TMP/back")"
check_eq "for its node's host, too" "$want" "$(C zrs mem get "$s" "$TMP/back" && sum "$TMP/back")"
check "a copy over bytes that are there" A zrs mem cp "$s" "$r"
check_eq "has these bytes" "$want" "$(A zrs mem get "$r" "$TMP/back" && sum "$TMP/back")"
# Many at a time, and the other operations of a queue; the target's keys are for more uses then, and a region has 64.
r=$(B zrs mem alloc 1:1 1M) && w=$(B zrs mem key "$r" --rights rw) || ktap_bail "a region"
check_lines A python3 "$(dirname "$0")/queue.py" "$w"
check "nothing stays pinned" unpinned_here
ktap_done
