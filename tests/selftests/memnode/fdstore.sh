#!/bin/bash
# A daemon that is started again keeps its node and the regions there, by systemd's descriptor store; without one
# they end with the daemon.
# rows: M5
# hosts: none
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/memnode.sh"

ktap_start
nodes_up || ktap_bail "three hosts and two nodes"
head -c 300001 /dev/urandom >"$TMP/file"
want=$(sum "$TMP/file")
for h in A B C; do $h zrs mem nodes add 1:6 "$ADDR_C"; done
mkfifo "$TMP/kill"
exec {kill}<>"$TMP/kill"
/run/netns-exec zrsC python3 "$(dirname "$0")/store.py" zrs mem serve --node 1:6 --size 2M --open \
	<"$TMP/kill" >>"$TMP/manager" 2>&1 &
# shellcheck disable=SC2034,SC2154 # a key, of lib.sh
PID[manager]=$!
at_end "kill -9 $!; wait $!"
says manager "ready" || ktap_bail "the daemon"
check "it has its node stored" has "$TMP/manager" "stored zrs-node-1-6-2097152"
cp "$TMP/manager" "$TMP/stored"
echo 00112233445566778899aabbccddeeff >"$TMP/admission"
r=$(A zrs mem put "$TMP/file" 1:6) || ktap_bail "put"
for n in 1 2; do
	echo >&"$kill"
	check "killed, and started again ($n)" says manager "again"
	: >"$TMP/manager"
	check_eq "the region is there ($n)" "$want" "$(A zrs mem get "$r" "$TMP/back" && sum "$TMP/back")"
	check "and others can be made ($n)" A zrs mem alloc 1:6 4096 --ttl 1000
done
check_eq "it was stored once" 0 "$(grep -c stored "$TMP/manager")"
# Of other options: the region has to be ended on purpose.
for options in "--size 2M --open --host-percent 40" "--size 4M --open" "--size 2M --admission $TMP/admission"; do
	check_fails "stored, and started again with $options" "node of other options" /run/netns-exec zrsC env LISTEN_FDS=1 \
		LISTEN_FDNAMES="$(sed -n 's/^stored //p' "$TMP/stored")" sh -c "LISTEN_PID=\$\$ exec zrs mem serve --node 1:6 $options"
done
stop nodeB KILL
# The host still listens for a second; then it refuses links.
check_fails "without a store the node ends with its daemon" "no host serves this node|serves no memory" unless_lost A zrs mem alloc 1:1 1M
ktap_done
