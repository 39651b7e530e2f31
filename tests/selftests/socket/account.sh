#!/bin/bash
# Memory cgroups: the owner of a socket pays for it and for its unread data, whichever thread
# allocates; a limit refuses what goes beyond, and nothing else.
# rows: B5 B11 B19
# debug: full
# timeout: 180
. "$(dirname "$0")/../../lib/ktap.sh"
# shellcheck source=tests/lib/kernel-log.sh
. "$(dirname "$0")/../../lib/kernel-log.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
root=/sys/fs/cgroup
echo +memory >$root/cgroup.subtree_control
grep -qw memory $root/cgroup.subtree_control || {
	ktap_skip "memory cgroups" "the kernel has none"
	ktap_done
}
ulimit -n 65536
n=$(less 1000)

# group NAME: a new one.
group() {
	mkdir "$root/zrs-$1" || ktap_bail "the cgroup $1"
	at_end "rmdir $root/zrs-$1"
}
# in_group GROUP NAME HOST TEXT CMD...: as start, the program in the cgroup. (`ip netns exec` hides
# the cgroups.)
in_group() {
	local group=$1 name=$2 host=$3 text=$4
	shift 4
	# shellcheck disable=SC2016 # for the inner one
	start "$name" - "$text" bash -c 'echo $$ >"$0" && exec "$@"' "$root/zrs-$group/cgroup.procs" \
		ip netns exec "zrs$host" "$@"
}
# paid GROUP: bytes of kernel memory it pays for.
paid() { sed -n 's/^kernel //p' "$root/zrs-$1/memory.stat"; }
# pays GROUP at-least|at-most BYTES: within some seconds. (The kernel adds up what its processors
# have counted every two.)
pays() {
	local _ now
	for _ in $(seq 1 $((100 * PATIENCE))); do
		now=$(paid "$1")
		case $2 in
		at-least) [ "$now" -lt "$3" ] || return 0 ;;
		at-most) [ "$now" -gt "$3" ] || return 0 ;;
		esac
		nap 0.1
	done
	echo "$1 pays for $now, expected $2 $3"
	return 1
}
# happened GROUP EVENT: how often.
happened() { sed -n "s/^$2 //p" "$root/zrs-$1/memory.events"; }

# Each alone: a listener that accepts nothing has one allocation for each connection, our socket;
# the connecting side pays for the kernel's sock and inode as well.
for g in idle opens; do group $g; done
in_group idle idle B "opened 0" zrs-selftest fill --listen "$ADDR_B:7000" || ktap_bail "a listener"
before=$(paid idle)
in_group opens opens A "opened $n" zrs-selftest fill --connect "$ADDR_B:7000" --conns "$n" ||
	ktap_bail "$n connections"
check "whoever connects pays for $n sockets" pays opens at-least $((n * 2048))
check "the listener's owner for those that wait for accept()" pays idle at-least $((before + n * 500))
ktap_say "for a connection: $(($(paid opens) / n)) and $((($(paid idle) - before) / n)) bytes"
stop opens
stop idle
check "it gets them back from the one" pays opens at-most 400000
check "and from the other" pays idle at-most 400000

# Unread data is copied when it fills a link's blocks: by the worker, or by the thread of another
# program that waits for the link.
for g in reads writes waits; do group $g; done
conns=$(($(less 200) + 20))
in_group reads reads B "listening on" zrs-selftest fill --listen "$ADDR_B:7001" --conns $conns ||
	ktap_bail "a server"
in_group waits answers B "listening on" zrs-selftest pingpong --server "$ADDR_B:7002" --conns 1 --rounds 1000000 ||
	ktap_bail "another program"
start asks A "" zrs-selftest pingpong --client "$ADDR_B:7002" --conns 1 --rounds 1000000
nap 1
waited=$(paid waits)
spilled=$(counter rx_spilled)
in_group writes writes A "sent" zrs-selftest fill --connect "$ADDR_B:7001" --conns $conns --send 32000 ||
	ktap_bail "$conns writers"
says reads "opened $conns" || ktap_bail "they are accepted"
moved() {
	local _
	for _ in $(seq 1 $((100 * PATIENCE))); do
		[ $(($(counter rx_spilled) - spilled)) -lt $((conns * 25000)) ] || return 0
		nap 0.1
	done
	return 1
}
check "most of it is copied" moved
check "the receiver pays for the copies" pays reads at-least $((conns * 25000))
check "nobody else on its host" pays waits at-most $((waited + 400000))
stop writes
stop asks
stop answers
stop reads
check "it gets them back" pays reads at-most 400000

# A limit.
for g in small large; do group $g; done
in_group small small B "opened 0" zrs-selftest fill --listen "$ADDR_B:7004" || ktap_bail "a listener"
in_group large large B "opened 0" zrs-selftest fill --listen "$ADDR_B:7005" || ktap_bail "another"
echo $(($(cat $root/zrs-small/memory.current) + (64 << 10))) >$root/zrs-small/memory.max
start many A "opened" zrs-selftest fill --connect "$ADDR_B:7004" --conns 4000
check "a listener's limit: ENOBUFS to whoever connects" grep -E "^opened [0-9]+, then connect: ENOBUFS" "$TMP/many"
refusals() { [ "$(happened small max)" -gt 0 ]; }
check "the limit has refused it" refusals
check_eq "and killed nobody" 0 "$(happened small oom_kill)"
start more A "" zrs-selftest fill --connect "$ADDR_B:7005" --conns 50
check "another listener takes connections meanwhile" says more "opened 50"
grep -q "then" "$TMP/more" && ktap_fail "all of them"
echo max >$root/zrs-small/memory.max
start again A "" zrs-selftest fill --connect "$ADDR_B:7004" --conns 20
check "and that one again without the limit" says again "opened 20"

# Unread data of a cgroup at its limit: the cgroup pays for it beyond the limit, and nobody is killed.
group full
in_group full full B "listening on" zrs-selftest fill --listen "$ADDR_B:7006" --conns $conns || ktap_bail "a server"
start fills A opened python3 "${0%/*}/fills.py" "$ADDR_B" 7006 $conns 32000 "$TMP/fill" || ktap_bail "$conns writers"
says full "opened $conns" || ktap_bail "they are accepted"
spilled=$(counter rx_spilled)
before=$(paid full)
echo $(($(cat $root/zrs-full/memory.current) + (256 << 10))) >$root/zrs-full/memory.max
: >"$TMP/fill"
check "data for a cgroup at its limit arrives" says fills sent
check "and is copied" moved
check "the cgroup pays for it" pays full at-least $((before + conns * 25000))
check_eq "and nobody is killed" 0 "$(happened full oom_kill)"
echo max >$root/zrs-full/memory.max
stop fills
stop full

# A program's own limit: as for TCP the kernel would kill it, if permitted; this program is protected.
group own
mkfifo "$TMP/go"
# shellcheck disable=SC2016 # for the inner one
in_group own own A "ready" bash -c 'echo -1000 >/proc/self/oom_score_adj
	echo ready
	read -r _ <"$TMP/go"
	exec zrs-selftest fill --connect "$0" --conns 900' "$ADDR_B:7005" || ktap_bail "a program with a limit"
echo $(($(cat $root/zrs-own/memory.current) + (1 << 20))) >$root/zrs-own/memory.max
echo >"$TMP/go"
check "its own limit" says own "opened"
check "an errno of socket()" grep -E "^opened [0-9]+, then socket: (ENOMEM|ENFILE|ENOBUFS)" "$TMP/own"
# The kernel reports with a call trace that it found no program to kill; all other traces count.
dmesg >"$TMP/log"
if grep -q "Memory cgroup" "$TMP/log" &&
	! grep -E "${kernel_log_bad/|\[Cc\]all \[Tt\]race/}" "$TMP/log"; then
	cat "$TMP/log" >>/results/kernel.log
	dmesg -C
fi
start last A "" zrs-selftest fill --connect "$ADDR_B:7005" --conns 20
check "others go on" says last "opened 20"
ktap_done
