#!/bin/bash
# Memory nodes of two machines: the network loses every packet for a short and for a long time, and a machine loses its
# power, in the middle of copies, puts and gets. Waiting calls get an error in time, local copies
# go on, and afterwards all copies work.
# rows: M4 M5 B12 E5
# params: connect_timeout_ms=4000 ack_timeout_ms=500 retry_count=6
# timeout: 300
. "$(dirname "$0")/../lib/ktap.sh"
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/../lib/machines.sh"

# traffic: B copies to A and from A, within its own node, and writes to A; A copies to B's node.
traffic() {
	copier toA B "$own" "$far" && copier fromA B "$far2" "$own2" && copier bystander B "$own" "$own3" &&
		writer B "$far3" && copier asker A "$far2" "$own4"
}
copies() { B zrs mem cp "$own" "$far" && B zrs mem cp "$far" "$own2" && A zrs mem cp "$own2" "$far2"; }
same() { B zrs mem get "$1" /tmp/one && B zrs mem get "$2" /tmp/two && B cmp /tmp/one /tmp/two; }

ktap_start
serve A 1:1 && serve B 1:2 || ktap_bail "a node in each machine"
own=$(region B 1:2) && own2=$(region B 1:2) && own3=$(region B 1:2) && own4=$(region A 1:2) &&
	far=$(region B 1:1) && far2=$(region A 1:1) && far3=$(region B 1:1) || ktap_bail "regions"
# shellcheck disable=SC2016 # the guest's shell expands it
check "bytes are put" B sh -c 'head -c 2097152 /dev/urandom >/tmp/file && zrs mem put /tmp/file "$1"' - "$own"

traffic || ktap_bail "traffic"
check "cut for 1.5 s" wire_cut
sleep 1.5
check "mended" wire_mend
for name in toA fromA bystander asker; do check "the copies go on ($name)" goes_on $name; done
writes_on() { ! grep after "$TMP/writer"; }
check "and the writes" writes_on

check "cut for long" wire_cut
lost toA "a copy whose target is cut off ends"
lost fromA "one whose source is cut off"
lost asker "one whose requester is cut off from the target"
check "and a write" writer_lost
check "within its node B goes on copying" goes_on bystander
check "and frees a region" B zrs mem free "$(region B 1:2)"
check "mended" wire_mend
check_within "all copies work again" 30 copies
check "and are right" same "$own" "$far2"

stop bystander
traffic || ktap_bail "traffic"
vm_kill A
lost toA "the target's machine is gone"
lost fromA "the source's"
check "and a write" writer_lost
check "B goes on copying" goes_on bystander
check "a region that A's program allocated can be freed" B zrs mem free "$own4"
check "A boots" vm_up A
A zrs_load connect_timeout_ms=4000 ack_timeout_ms=500 retry_count=6
serve A 1:1 || ktap_bail "A's node"
gone() { B zrs mem get "$far" /tmp/none 2>&1 | grep -q "was freed"; }
check_within "a region of the former node is gone" 30 gone
far=$(region B 1:1) && far2=$(region A 1:1) || ktap_bail "regions in the new node"
check_within "all copies work" 30 copies
check "and are right" same "$own" "$far2"
stop bystander
for h in A B; do stop "node$h" TERM; done
ktap_done
