#!/bin/bash
# The counters of memory nodes, as any user of each of three hosts sees them: the bytes that programs and nodes have written, read
# and copied, requests, refusals, and gauges. The requester of a copy counts none of its bytes.
# rows: B8 M2
# dma: coherent
# hosts: none
# timeout: 180
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/memnode.sh"

N=1000000
# seen HOST: its counters that are not 0, a line "name value" each; "-" is the first network namespace.
seen() {
	local ns=(/run/netns-exec "zrs$1")
	[ "$1" != - ] || ns=(nsenter --net=/proc/1/ns/net)
	"${ns[@]}" setpriv --reuid 65534 --regid 65534 --clear-groups zrs stats --json |
		sed 's/,/\n/g' | sed -nE 's/^"mem_(.*)":([1-9][0-9]*)}?$/\1 \2/p'
}
# look: the counters of all hosts as they are now, for "of" and "total", and "counts" from here on.
look() { local h; for h in A B C; do seen $h >"$TMP/seen$h"; done; }
# of HOST NAME: a counter at the last look.
of() {
	local name n=0
	while read -r name n; do [ "$name" != "$2" ] || { echo "$n"; return; }; done <"$TMP/seen$1"
	echo 0
}
# total NAME: the sum of a counter of all hosts.
total() { echo $(($(of A "$1") + $(of B "$1") + $(of C "$1"))); }
BYTES="program_write_bytes|program_read_bytes|node_write_bytes|node_read_bytes|copied_out_bytes|copied_within_bytes|requests_refused|late_revokes|silent_links"
# counts TEXT HOST WHAT: since the last look, of bytes and refusals, the host has counted WHAT, "name+n ..." in the header's order.
counts() {
	local had
	had=$(seen "$2" | awk -v names="^($BYTES)\$" -v seen="$TMP/seen$2" '
		FILENAME == seen { before[$1] = $2; next }
		$1 ~ names && $2 != before[$1] { print $1 "+" $2 - before[$1] }' "$TMP/seen$2" - | xargs)
	check_eq "$1" "$3" "$had"
}
# settled: looks until all sent requests are served, the held and the given grants agree, and only the reader's grants
# are left: other grants, and unused links, go after 10 s.
settled() {
	local end=$((SECONDS + 20 * PATIENCE)) sums want="0 0 2 1 2 2 2"
	while [ "$SECONDS" -lt $end ]; do
		look
		sums="$(($(total requests_sent) - $(total requests_served))) $(($(total grants_held) - $(total grants_given)))"
		sums+=" $(of A grants_held) $(of B grants_given) $(of A links) $(of B links) $(of C links)"
		[ "$sums" != "$want" ] || return 0
		nap 0.1
	done
	echo "$sums, not $want"
	return 1
}

ktap_start
nodes_up || ktap_bail "three hosts and two nodes"
for h in A B C; do check_eq "$h: nothing has happened" "" "$(seen $h)"; done
head -c $N /dev/urandom >"$TMP/file"
head -c 100 /dev/urandom >"$TMP/small"

look
r=$(A zrs mem put "$TMP/file" 1:1) && s=$(A zrs mem put "$TMP/small" 1:2) || ktap_bail "put"
counts "put: the program's bytes" A "program_write_bytes+1000100"
counts "by remote keys, at the node" B "node_write_bytes+$N"
counts "by a message, at another one" C "node_write_bytes+100"
look
A zrs mem get "$r" "$TMP/back" && A zrs mem get "$s" "$TMP/back" || ktap_bail "get"
counts "get: the program's bytes" A "program_read_bytes+1000100"
counts "by a remote key: no host sees them" B ""
counts "by a message" C "node_read_bytes+100"

look
A python3 "$(dirname "$0")/queued.py" "$r" || ktap_bail "a queue"
counts "by a queue: the program's bytes" A "program_write_bytes+100000 program_read_bytes+100000"
counts "the node's host does not see the read" B "node_write_bytes+100000"

look
c=$(A zrs mem cp "$r" 1:2) || ktap_bail "cp"
counts "a copy: the requester has none of its bytes" A ""
counts "the source" B "copied_out_bytes+$N"
counts "the target" C "node_write_bytes+$N"
look
own=$(A zrs mem cp "$r" 1:1) || ktap_bail "cp"
counts "a copy within a host: the requester" A ""
counts "the host" B "copied_within_bytes+$N"

# A host with nothing open has no links, and remote keys that are not used are given back after 10 s.
start reader A "reading" python3 "$(dirname "$0")/reader.py" "$r" "$c" || ktap_bail "a reader"
check "all requests are served, grants that are held were given, and there are two links and grants of the reader" settled
check "there was something" [ "$(of A requests_sent)" -gt 8 -a "$(of B requests_served)" -gt 5 -a "$(of C requests_served)" -gt 3 -a "$(of B requests_sent)" -gt 0 ]
check_eq "the node of C asks nobody" 0 "$(of C requests_sent)"
check_eq "regions" "0 2 2" "$(of A regions) $(of B regions) $(of C regions)"
stop reader
pages=$(((N + 4095) / 4096 * 4096))
check_eq "their bytes" "0 $((2 * pages)) $((pages + 4096))" "$(of A region_bytes) $(of B region_bytes) $(of C region_bytes)"

look
check "free" A zrs mem free "$own"
check_fails "a region that was freed" "was freed" A zrs mem get "$own" "$TMP/none"
A zrs mem nodes add 1:8 "$ADDR_C"
check_fails "a node that C does not serve" "no host serves this node" A zrs mem alloc 1:8 1M
check_fails "and one that is in no directory" "no host serves this node" A zrs mem alloc 1:9 1M
counts "refusals: those who ask count none" A ""
counts "the host of the region" B "requests_refused+1"
counts "the host that was taken for the node's" C "requests_refused+1"

look
before=$(of B requests_sent)
w=$(B zrs mem put "$TMP/file" 1:1) && B zrs mem get "$w" "$TMP/back" || ktap_bail "put"
counts "a program at its own node" B "program_write_bytes+$N program_read_bytes+$N node_write_bytes+$N node_read_bytes+$N"
look
B python3 "$(dirname "$0")/queued.py" "$w" || ktap_bail "a queue"
counts "and by a queue" B "program_write_bytes+100000 program_read_bytes+100000 node_write_bytes+100000 node_read_bytes+100000"
look
check_eq "asks nobody else" "$before" "$(of B requests_sent)"
check_eq "the first network namespace has none of this" "" "$(seen -)"
check_eq "Prometheus is told the same" "$(of B node_write_bytes)" "$(B zrs stats --prometheus | sed -n 's/^zrs_mem_node_write_bytes_total //p')"

for x in "$r" "$s" "$c"; do check "free" A zrs mem free "$x"; done
check "free" B zrs mem free "$w"
check "no region is left" no_regions
look
check_eq "as the counters say" "0 0" "$(total regions) $(total region_bytes)"
stop nodeC TERM
look
check_eq "what a node has counted stays" "$((N + 100))" "$(of C node_write_bytes)"
ktap_done
