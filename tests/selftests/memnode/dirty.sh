#!/bin/bash
# A file that is mapped, read into from a region, and written back while the bytes are under way: they
# are in the file afterwards, though its pages were clean when the device wrote them.
# rows: M5
# dma: coherent
# hosts: none
# params: ack_timeout_ms=2000
# debug: no
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/memnode.sh"

ktap_start
nodes_up || ktap_bail "three hosts and two nodes"
mem=$TMP/mem
mkdir "$mem"
at_end "umount -l $mem 2>/dev/null"
start mount A "mounted at" zrs mem mount "$mem" || ktap_bail "the mount"
head -c 262144 /dev/urandom >"$TMP/file"
head -c 262144 /dev/zero >"$mem/2/x"
region=$(A zrs mem put "$TMP/file" 1:1 2>/dev/null) || ktap_bail "a region"
mkfifo "$TMP/go"
exec {go}<>"$TMP/go"
start reader A ready python3 "$(dirname "$0")/dirty.py" "$region" "$mem/2/x" "$TMP/go" || ktap_bail "the reader"
port b down
echo go >&"$go"
check "the file is written back while the bytes are under way" says reader "written back early"
port b up
check "the bytes are read" says reader "read True" 60
check "and in the file" says reader "right"
check_ended "the program ends" reader
check "nothing stays pinned" unpinned_here
ktap_done
