#!/bin/bash
# Keys of memory nodes: a wrong, revoked, expired or used-up one, one for another operation or range is
# refused with its status, while a copy by another host goes on; admission; seal.
# rows: M4
# dma: coherent
# hosts: none
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/memnode.sh"

ktap_start
nodes_up || ktap_bail "three hosts and two nodes"
head -c 3000000 /dev/urandom >"$TMP/file"
r=$(A zrs mem put "$TMP/file" 1:1 2>/dev/null) || ktap_bail "put"
other=$(B zrs mem put "$TMP/file" 1:1 2>/dev/null) || ktap_bail "put by the node's own host"
# The bystander: B has its region copied to C all the time.
# shellcheck disable=SC2016 # its own variables
start bystander B "begins" bash -c '
	to=$(zrs mem alloc 1:2 3000000) || exit 1
	echo begins
	while [ ! -e '"$TMP"'/enough ]; do zrs mem cp "$1" "$to" >/dev/null || exit 1; done' - "$other"

read_key=$(A zrs mem key "$r" --rights r) || ktap_bail "a key"
check "a key to read reads" A zrs mem get "$read_key" "$TMP/back"
check_fails "and does not write" "does not allow this" A zrs mem put "$TMP/file" "$read_key"
check_fails "nor frees" "does not allow this" A zrs mem free "$read_key"
# A changed digit of the secret, and a region that is not there.
last=${r:50:1}
wrong=${r:0:50}$([ "$last" = b ] && echo c || echo b)${r:51}
check_fails "a wrong secret" "does not allow this" A zrs mem get "$wrong" "$TMP/none"
part=$(A zrs mem key "$r" --rights rw --offset 1000 --length 100000)
check "a key for a part reads that" A zrs mem get "$part" "$TMP/part"
check "and no more" cmp "$TMP/part" <(tail -c +1001 "$TMP/file" | head -c 100000)
target=$(A zrs mem alloc 1:2 3000000)
check_lines A python3 "$(dirname "$0")/beyond.py" "$r" "$part" "$target"
check "the region is as it was" sh -c "ip netns exec zrsA zrs mem get '$r' '$TMP/back' && cmp '$TMP/file' '$TMP/back'"
used=$(A zrs mem key "$r" --rights r --uses 1)
check "a key for one use" A zrs mem cp "$used" 1:2
held=$(C zrs mem ls | wc -l)
[ "$held" -gt 0 ] || ktap_bail "the regions of C"
check_fails "is used up then" "used up" A zrs mem cp "$used" 1:2
check_eq "and leaves no new region behind" "$held" "$(C zrs mem ls | wc -l)"
big=$(A zrs mem alloc 1:1 10M) || ktap_bail "a region of 10 MiB"
check_lines A python3 "$(dirname "$0")/once.py" "$big" "$(A zrs mem key "$big" --rights r --uses 1)" \
	"$(A zrs mem key "$big" --rights w --uses 1)"
short=$(A zrs mem key "$r" --rights r --ttl 1)
nap 0.2
check_fails "an expired one" "expired" A zrs mem get "$short" "$TMP/none"
check "revoke" A zrs mem unkey "$r" "$read_key"
check_fails "a revoked one" "revoked" A zrs mem get "$read_key" "$TMP/none"
check "seal" A zrs mem seal "$r"
check_fails "a sealed region" "sealed" A zrs mem put "$TMP/file" "$r"
check "is read" A zrs mem get "$r" "$TMP/back"
check "the bystander has not noticed" kill -0 "${PID[bystander]}"
: >"$TMP/enough"
check_ended "and ends well" bystander 30

stop nodeC TERM
nap 0.5
echo 00112233445566778899aabbccddeeff >"$TMP/admission"
start guarded C "serving node 1:2" zrs mem serve --node 1:2 --size 8M --admission "$TMP/admission" ||
	ktap_bail "a node with an admission key"
check_fails "no admission key" "wants an admission key" unless_lost A zrs mem alloc 1:2 1M
check "the admission key" unless_lost A zrs mem alloc 1:2 1M --admission "$TMP/admission"
ktap_done
