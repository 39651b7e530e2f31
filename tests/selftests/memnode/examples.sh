#!/bin/bash
# The examples of memory nodes in Rust, C (by calls, and by a queue) and Python: each has one node write a file to
# another one. The key/value cache: a router copies blocks between two workers' nodes, none of the bytes pass it, and a copy
# that is given up touches nothing of the request that gets its blocks.
# rows: M2 M3 M5 B13
# hosts: none
# debug: full
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/memnode.sh"

ktap_start
nodes_up 64M || ktap_bail "three hosts and two nodes"
built=/zrs/build/userspace/release/examples
scripts=/zrs/userspace/examples
head -c 1500077 /dev/urandom >"$TMP/file"
want="1500077 bytes went from node 1:1 to node 1:2, and are the same"
for example in "$built/region" "$built/region_c" "$built/queue" "python3 $scripts/region.py"; do
	before=$(passed)
	# shellcheck disable=SC2086 # a command
	said=$(A $example 1:1 1:2 "$TMP/file" 2>&1)
	check_eq "${example##*/}" "$want" "$said"
	# Once to the first node, once from the second one, and retransmissions; a relay would have sent twice the bytes.
	through=$(($(passed) - before))
	check "${example##*/}: nothing of the copy passes the requester" [ "$through" -gt 3000154 -a "$through" -lt 5500000 ]
done
check "all regions are freed" no_regions

cache=$scripts/kv-cache/kv_cache.py blocks=$(less 24)
start prefill B "listens" python3 "$cache" worker 1:1 "$ADDR_B:7000" || ktap_bail "the prefill worker"
start decode C "listens" python3 "$cache" worker 1:2 "$ADDR_C:7000" || ktap_bail "the decode worker"
before=$(passed)
check "the router" A python3 "$cache" router "$ADDR_B:7000" "$ADDR_C:7000" "$blocks"
through=$(($(passed) - before))
mv "$TMP/out" "$TMP/router"
sed 's/^/#   /' "$TMP/router"
ktap_say "through the router: $through bytes"
check "none of the blocks passes the router" [ "$through" -lt $((blocks << 17)) ]
check "every block is right" has "$TMP/router" "$blocks of $blocks blocks are right"
check "the copy was given up in the middle" grep -q "^the copy ends: " "$TMP/router"
check "and nothing of it landed afterwards" has "$TMP/router" "$blocks of $blocks blocks of the next request are untouched"
ktap_done
