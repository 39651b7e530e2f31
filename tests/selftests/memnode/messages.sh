#!/bin/bash
# A device whose registrations are short: a region takes several of them, and one that takes more than a remote key
# has room for is read, written and copied by messages. For DEVICE=least and DEVICE=cxgb4, of 128 pages.
# rows: M1 M2 M3 B17
# hosts: none
# debug: full
# timeout: 400
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/memnode.sh"

ktap_start
case ${DEVICE:-} in
least | cxgb4) ;;
*)
	ktap_skip "regions by messages" "this device registers 512 pages at a time, and no region has too many of them"
	ktap_done
	;;
esac
nodes_up 256M || ktap_bail "three hosts and two nodes"
head -c 20M /dev/urandom >"$TMP/file"
want=$(sum "$TMP/file")
r=$(A zrs mem put "$TMP/file" 1:1) || ktap_bail "put"
check_eq "a region of 40 registrations" "$want" "$(A zrs mem get "$r" "$TMP/back" && sum "$TMP/back")"
s=$(A zrs mem cp "$r" 1:2) || ktap_bail "a copy"
check_eq "and its copy" "$want" "$(C zrs mem get "$s" "$TMP/back" && sum "$TMP/back")"

# 100 MiB are 200 registrations, and a key has 170.
big=$(A zrs mem alloc 1:1 100M) || ktap_bail "a large region"
check_lines A python3 "$(dirname "$0")/messages.py" "$big"
check "a copy has a key of its own, for its bytes alone" A zrs mem cp "$r" "$big"
check_eq "which are right" "$want" "$(A zrs mem get "$big" "$TMP/back" && head -c 20M "$TMP/back" | sum /dev/stdin)"
third=$(A zrs mem alloc 1:2 100M) || ktap_bail "another large region"
check "a copy of more registrations than a key has" A zrs mem cp "$big" "$third"
check_eq "is right" "$(A zrs mem get "$big" "$TMP/big" && sum "$TMP/big")" "$(A zrs mem get "$third" "$TMP/back" && sum "$TMP/back")"
check_eq "the small one is as it was" "$want" "$(A zrs mem get "$r" "$TMP/back" && sum "$TMP/back")"
ktap_done
