#!/bin/bash
# A program that keeps a link busy with queued writes leaves room for the queued writes and reads of other programs of its host,
# and for those of threads that wait.
# rows: M4
# dma: coherent
# hosts: none
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/memnode.sh"

ktap_start
here=$(dirname "$0")
nodes_up || ktap_bail "three hosts and two nodes"
head -c 8 /dev/zero >"$TMP/count"
r=$(A zrs mem alloc 1:1 4M) && s=$(A zrs mem alloc 1:1 4M) || ktap_bail "regions"
start hog A writing python3 "$here/turns.py" hog "$TMP/count" "$r" || ktap_bail "a program that keeps the link busy"
check_lines A python3 "$here/turns.py" ask "$TMP/count" "$s"
check "its writes succeed" runs "${PID[hog]}"
ktap_done
