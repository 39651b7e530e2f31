#!/bin/bash
# When free, seal or revocation has returned, no further byte lands: a writer hammers a region, and the
# node's memory is looked at afterwards. Neither waits for a program whose memory does not come. A
# requester that is killed leaves nothing behind, and rmmod works when no region and no node is open.
# rows: M4 M5
# dma: coherent
# hosts: none
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/memnode.sh"

ktap_start
here=$(dirname "$0")
nodes_up || ktap_bail "three hosts and two nodes"
for end in seal unkey free; do
	r=$(A zrs mem alloc 1:1 2M) || ktap_bail "a region"
	w=$(A zrs mem key "$r" --rights rw) || ktap_bail "a key"
	start "writer-$end" A "" python3 "$here/hammer.py" "$w"
	start "copier-$end" C "" python3 "$here/hammer.py" "$w"
	says "writer-$end" writing
	says "copier-$end" writing
	nap 0.5
	case $end in
	seal) check "seal under load" B zrs mem seal "$r" ;;
	unkey) check "revocation under load" B zrs mem unkey "$r" "$w" ;;
	free) check "free under load" B zrs mem free "$r" ;;
	esac
	if [ "$end" != free ]; then
		B zrs mem get "$r" "$TMP/then"
		nap 0.5
		B zrs mem get "$r" "$TMP/later"
		check "nothing has landed after $end" cmp "$TMP/then" "$TMP/later"
	else
		# The whole node, freshly allocated: zero, and so it stays.
		r=$(B zrs mem alloc 1:1 16M)
		nap 0.5
		B zrs mem get "$r" "$TMP/later"
		check "what is allocated afterwards is zero" cmp "$TMP/later" <(head -c 16M /dev/zero)
	fi
	check_ended "the writer was refused ($end)" "writer-$end" 20
	check_ended "and the other one ($end)" "copier-$end" 20
done

if [ "$SCALE" = 1 ]; then
	r=$(A zrs mem alloc 1:1 4M) || ktap_bail "a region"
	check "what is under way when a region ends is bounded" A python3 "$here/underway.py" "$r"
else
	ktap_skip "what is under way when a region ends" "it takes longer here than a node waits before it ends the link"
fi

# By the node's own host, with memory whose page faults do not end: nothing waits for such a program.
for how in read write; do
	r=$(B zrs mem alloc 1:1 2M) || ktap_bail "a region"
	start "stuck-$how" B going python3 "$here/stuck.py" "$how" "$r"
	nap 0.5
	check "a program is stuck in a $how" runs "${PID[stuck-$how]}"
	check "and its region is freed" timeout $((20 * PATIENCE)) /run/netns-exec zrsB zrs mem free "$r"
	check "while it is stuck" runs "${PID[stuck-$how]}"
	stop "stuck-$how"
done

r=$(A zrs mem alloc 1:1 4M) || ktap_bail "a region"
start victim A writing python3 "$here/hammer.py" "$r"
nap 0.3
stop victim
check "its region is freed while the requester is dead" B zrs mem free "$r"
check "nothing of it stays pinned" unpinned_here
stop nodeB TERM
stop nodeC TERM
check "rmmod, with no region and no node open" zrs_unload
ktap_done
