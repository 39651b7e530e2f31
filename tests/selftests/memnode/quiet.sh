#!/bin/bash
# When free, seal, revocation or cancel has returned, no further byte lands: programs of two hosts write a region, and
# all of the node's memory is looked at for a second afterwards; so it is when the writers were killed and their pages unpinned.
# None of these waits for a program whose memory does not come. A requester that is killed leaves nothing behind, and rmmod
# works when no region and no node is open.
# rows: M4 M5
# dma: coherent
# hosts: none
# timeout: 180
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/memnode.sh"

ktap_start
here=$(dirname "$0")
nodes_up || ktap_bail "three hosts and two nodes"
for h in A B C; do $h zrs mem nodes add 1:3 "$ADDR_B" || ktap_bail "the directory"; done
check_lines B python3 "$here/quiet.py" 3

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
