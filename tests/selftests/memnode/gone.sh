#!/bin/bash
# Copies whose target, source, or requester goes in the middle, and whose device is removed or daemon killed: the caller gets an
# error in time, other copies of the source go on, memory can be freed, and after the return everything works.
# rows: M4 M5 E5
# hosts: none
# debug: full
# tier: full
# timeout: 600
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/memnode.sh"

here=$(dirname "$0")
# again NAME: the copy that failed is repeated, as soon as there is a link.
again() {
	local _
	for _ in $(seq 1 $((30 * PATIENCE))); do
		A zrs mem cp "$from" "$to" >/dev/null 2>"$TMP/err" && { ktap_pass "$1: the copy is repeated"; break; }
		nap 1
	done
	check_eq "$1: and right" "$want" "$(A zrs mem get "$to" "$TMP/back" && sum "$TMP/back")"
}
# within SECONDS COMMAND...: the command fails before the timeout.
within() {
	A timeout "$@" >/dev/null 2>"$TMP/err"
	[ $? = 1 ]
}
# lost NAME TEXT: the copier has failed because its peer is gone.
lost() {
	check_ended "$2: the call ends" "$1" 60
	check "$2: with the errno of a lost host" grep -qE "^ended: (ECONNRESET|EHOSTUNREACH|ENODEV)" "$TMP/$1"
	ktap_say "$(tail -1 "$TMP/$1")"
}

ktap_start
nodes_up 24M || ktap_bail "three hosts and two nodes"
head -c $((4 << 20)) /dev/urandom >"$TMP/file"
want=$(sum "$TMP/file")
from=$(A zrs mem put "$TMP/file" 1:1) && to=$(A zrs mem alloc 1:2 4M) || ktap_bail "regions"
here_too=$(B zrs mem alloc 1:1 4M) || ktap_bail "a region"

# The bystander copies within the source's node.
start bystander B copying python3 "$here/copier.py" "$from" "$here_too"
start copier A copying python3 "$here/copier.py" "$from" "$to" || ktap_bail "a copy"
port c down
lost copier "the target is gone"
seen=$(grep -c copying "$TMP/bystander")
nap 1
check "other copies of the source go on" [ "$(grep -c copying "$TMP/bystander")" -gt "$seen" ]
check "and a region of it is freed" B zrs mem free "$(B zrs mem alloc 1:1 1M)"
port c up
again "the target is back"
stop bystander

start copier A copying python3 "$here/copier.py" "$from" "$to" || ktap_bail "a copy"
port b down
lost copier "the source is gone"
check "the target's memory is freed meanwhile" C zrs mem free "$(C zrs mem alloc 1:2 1M)"
# The connection manager alone would go on for more than a minute.
check "a link to the source is given up in time" within $((15 * PATIENCE)) zrs mem cp "$from" "$to"
check "and the host cannot be reached" grep -q "no route to host" "$TMP/err"
port b up
again "the source is back"

start copier A copying python3 "$here/copier.py" "$from" "$to" || ktap_bail "a copy"
stop copier
check "the requester is killed: the source can be read" B zrs mem get "$from" "$TMP/back"
start copier A copying python3 "$here/copier.py" "$from" "$to" || ktap_bail "a copy"
port a down
nap 1
check "the requester's host is gone: the target's region is sealed" C zrs mem seal "$to"
check "and freed" C zrs mem free "$to"
port a up
ended copier 60 || stop copier
# An ask on the lost link fails once more.
to=$(A zrs mem alloc 1:2 4M) || to=$(A zrs mem alloc 1:2 4M) || ktap_bail "a region"

for which in "C vc target" "B vb source"; do
	read -r host netdev role <<<"$which"
	start copier A copying python3 "$here/copier.py" "$from" "$to" || ktap_bail "a copy"
	check "the device of the $role is removed" timeout 60 rdma link delete "rxe$host"
	lost copier "without the $role's device"
	check "a new one" ip netns exec "zrs$host" rdma link add "rxe$host" type rxe netdev "$netdev"
	again "the $role has a device"
done
# A daemon that is killed takes its node's memory with it.
for which in "B 1 source" "C 2 target"; do
	read -r host node role <<<"$which"
	start copier A copying python3 "$here/copier.py" "$from" "$to" || ktap_bail "a copy"
	stop "node$host" KILL
	check_ended "the $role's daemon is killed: the call ends" copier 60
	check "with an errno of a node that is gone" grep -qE "^ended: (ESTALE|ENXIO|ECONNREFUSED|ECONNRESET|ESHUTDOWN)" "$TMP/copier"
	ktap_say "$(tail -1 "$TMP/copier")"
	start "node$host" "$host" "serving node 1:$node" zrs mem serve --node "1:$node" --size 24M --open || ktap_bail "a new daemon"
	case $role in
	source) from=$(unless_lost A zrs mem put "$TMP/file" 1:1 | tail -1) ;;
	target) to=$(unless_lost A zrs mem alloc 1:2 4M | tail -1) ;;
	esac
	[[ $from$to == zrs:*zrs:* ]] || ktap_bail "a region: $from $to"
	again "the $role is served again"
done
check "nothing stays pinned" unpinned_here
for h in B C; do stop "node$h" TERM; done
check "rmmod" zrs_unload
ktap_done
