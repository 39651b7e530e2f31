#!/bin/bash
# The trace events of memory nodes: the asks to a node's host, their senders, and the answers.
# rows: B8 M4
# dma: coherent
# hosts: none
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/memnode.sh"

TRACING=/sys/kernel/tracing
# seen TEXT EVENT PATTERN: the trace has such a line.
seen() {
	if grep -qE " zrs_mem_$2: $3\$" $TRACING/trace; then
		ktap_pass "$1"
	else
		grep " zrs_mem_" $TRACING/trace | tail -20 | sed 's/^/#   /'
		ktap_fail "$1 (no zrs_mem_$2 $3)"
	fi
}

ktap_start
[ -d $TRACING/events ] || mount -t tracefs none $TRACING
[ -d $TRACING/events/zrs ] || {
	ktap_skip "tracepoints" "this kernel has none"
	ktap_done
}
nodes_up || ktap_bail "three hosts and two nodes"
at_end "echo 0 >$TRACING/events/zrs/enable; echo >$TRACING/trace"
echo >$TRACING/trace
for event in ask answer; do
	echo 1 >$TRACING/events/zrs/zrs_mem_$event/enable || ktap_bail "zrs_mem_$event"
done
head -c 1000000 /dev/urandom >"$TMP/file"
from=$(A zrs mem put "$TMP/file" 1:1) && to=$(A zrs mem alloc 1:2 1000000) && read=$(A zrs mem key "$from" --rights r) ||
	ktap_bail "regions"
seen "a region is asked for" ask "remote=$ADDR_A node=1:1 op=alloc bytes=1000000"
seen "and made" answer "remote=$ADDR_A op=alloc err=0"
seen "remote keys" answer "remote=$ADDR_A op=open err=0"
seen "bytes that were written by them" ask "remote=$ADDR_A node=0:0 op=wrote bytes=1000000"
seen "their acknowledgement" answer "remote=$ADDR_A op=wrote err=0"
check "a copy" A zrs mem cp "$from" "$to"
seen "which the source is asked for" ask "remote=$ADDR_A node=1:1 op=copy bytes=1000000"
seen "and whose bytes the target is told by the source" ask "remote=$ADDR_B node=0:0 op=wrote bytes=1000000"
check_fails "a free without the right" "Permission denied|permission" A zrs mem free "$read"
seen "the refusal" answer "remote=$ADDR_A op=free err=-13"
own=$(B zrs mem alloc 1:1 4096) || ktap_bail "a region of B"
seen "a program of the node's host" ask "remote=0.0.0.0 node=1:1 op=alloc bytes=4096"
for region in "$from" "$to"; do check "free" A zrs mem free "$region"; done
check "free" B zrs mem free "$own"
ktap_done
