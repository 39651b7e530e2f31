#!/bin/bash
# More regions at work than a link has grants: they wait for their turn, without an error. A region that stays and whose
# descriptor cannot be made does not stay. A host has its share of a node's regions, and leaves the others to other hosts.
# rows: M4 M5
# hosts: none
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/memnode.sh"

# regions_are N: node 1:1 has N regions, at once or soon.
regions_are() {
	local _
	for _ in $(seq 1 $((120 * PATIENCE))); do
		[ "$(B zrs mem ls | wc -l)" != "$1" ] || return 0
		nap 0.5
	done
	return 1
}

ktap_start
here=$(dirname "$0")
nodes_up || ktap_bail "three hosts and two nodes"
check_lines A python3 "$here/many.py" grants 1 4
check "their regions are freed" regions_are 0
check_lines A python3 "$here/many.py" keep 1
check "and none is left" regions_are 0
# Half of 4096: of each table a host has the share that it has of the bytes.
start full A "" python3 "$here/many.py" regions 1 2048
check "a host takes all that it may have" says full full 60
while IFS= read -r line; do
	case $line in
	"ok - "*) ktap_pass "${line#ok - }" ;;
	"not ok - "*) ktap_fail "${line#not ok - }" ;;
	*) ktap_say "$line" ;;
	esac
done <"$TMP/full"
check "another host has a region, too" C zrs mem alloc 1:1 4K
stop full
check "those of the first one end with it" regions_are 1
ktap_done
