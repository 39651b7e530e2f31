#!/bin/bash
# Many processes and threads in both hosts that do everything with sockets at once: first
# undisturbed, where no connection may break; then killed at random; then while links and devices go
# and come, memory is short, and rmmod is tried. Their actions follow from SEED.
# hosts: own
# rows: B9 B11 B1 B4 E3 E4 E5 Z2
# timeout: 240
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
seed=${SEED:-1}
short=5 long=15 most=300k
[ "$SCALE" = 1 ] || short=15 long=30
[ "${TIER:-ci}" != full ] || short=60 long=180 most=2M
ktap_say "SEED=$seed"
renice -n -20 $$ >/dev/null
RANDOM=$seed
port=7100
group=/sys/fs/cgroup/stress
mkdir "$group"
echo "+memory" >/sys/fs/cgroup/cgroup.subtree_control 2>/dev/null
at_end "echo 1 >$group/cgroup.kill; sleep 1; rmdir $group"

# stress_one HOST SEED ARGS...: in the background, in a separate control group.
stress_one() {
	local host=$1 own=$2 addr=ADDR_$1
	shift 2
	# The control group is not to be seen from within a host.
	# shellcheck disable=SC2016 # for the inner shell
	start "stress$host" - "# replay" bash -c 'echo $$ >"$0/cgroup.procs" && exec nice -n 39 ip netns exec "$@"' \
		"$group" "zrs$host" zrs-selftest stress --seed "$own" --processes 2 \
		--local "${!addr}:$port" --peers "$ADDR_A:$port,$ADDR_B:$port" --most "$most" \
		--patience $((40 * PATIENCE)) --when-hung "zrs ss -i; nsenter -t 1 -m cat /sys/kernel/debug/zrs/links" "$@"
}

# results HOST TEXT: its results.
results() {
	local rc=0 line
	ended "stress$1" $((long + 60)) || rc=$?
	while IFS= read -r line; do
		case $line in
		"ok - "*) ktap_pass "$2, host $1: ${line#ok - }" ;;
		"not ok - "*) ktap_fail "$2, host $1: ${line#not ok - }" ;;
		*) ktap_say "${line#\# }" ;;
		esac
	done <"$TMP/stress$1"
	[ "$rc" = 0 ] || [ "$rc" = 1 ] || ktap_fail "$2, host $1: exit status $rc"
}

# stress TEXT SECONDS ARGS...: in both hosts at once; DISTURB runs at the same time.
DISTURB='' UNTIL=''
stress() {
	local text=$1 rest=$2
	shift 2
	port=$((port + 10))
	stress_one A "$seed" --seconds "$rest" "$@" || ktap_bail "$text"
	stress_one B $((seed + 1)) --seconds "$rest" "$@" || ktap_bail "$text"
	[ -z "$DISTURB" ] || "$DISTURB" "$rest"
	if [ -n "$UNTIL" ]; then
		# No listener goes before the last client.
		says stressA "clients ended" $((rest + 60)) && says stressB "clients ended" 60 || ktap_bail "$text"
		: >"$UNTIL"
	fi
	results A "$text"
	results B "$text"
	check "$text: nothing is left behind" zrs_idle
}

# new_device HOST: its device goes, and there is another one.
new_device() {
	local dev=DEV_$1
	rdma link delete "${!dev}" || ktap_fail "disturbed: rdma link delete"
	rest
	ip netns exec "zrs$1" rdma link add "${!dev}" type rxe netdev "v${1,}" || ktap_fail "disturbed: a new device"
}

# disturb SECONDS: everything that an administrator, or the world, may do to it. One thing at a
# time: a process takes its time on a machine that is busy.
disturb() {
	local end=$((SECONDS + $1)) n=0 refused=0 host=A
	# The programs may have no socket for a moment: the keeper has one, from before rmmod.
	start keeper A holding zrs-selftest hold --what socket || ktap_bail "a socket that stays"
	while [ "$SECONDS" -lt "$end" ]; do
		n=$((n + 1))
		rmmod zrs 2>/dev/null || refused=$((refused + 1))
		case $((n % 4)) in
		1)
			new_device "$host"
			host=$([ "$host" = A ] && echo B || echo A)
			find /sys/kernel/debug/zrs -maxdepth 1 -type f -exec cat {} + >/dev/null || ktap_fail "disturbed: debugfs"
			;;
		2)
			echo $((12 << 20)) >"$group/memory.high"
			zrs stats >/dev/null || ktap_fail "disturbed: zrs stats"
			zrs pool >/dev/null || ktap_fail "disturbed: zrs pool"
			;;
		3)
			ip -n zrsA link set va down
			rest
			ip -n zrsA link set va up
			;;
		0)
			echo max >"$group/memory.high"
			ip netns exec "zrs$host" zrs ss >/dev/null || ktap_fail "disturbed: zrs ss"
			ip netns exec "zrs$host" zrs links >/dev/null || ktap_fail "disturbed: zrs links"
			;;
		esac
	done
	echo max >"$group/memory.high"
	# A device that had a message of the connection manager to send while its link was down
	# makes no connections any more (Documentation/testing.rst, findings, 6).
	new_device A
	new_device B
	check_eq "disturbed: rmmod is refused" "$n" "$refused"
	stop keeper
	ktap_say "$n rounds of disturbance"
}
# A moment, without a process for it.
rest() { read -rt 0.$((RANDOM % 8)) -u "$NEVER" _; }

UNTIL=$TMP/over
stress "undisturbed" "$short" --threads 4 --serve-until "$UNTIL"
UNTIL=
stress "killed" "$short" --threads 4 --kill-ms $((500 * SCALE)) --peers-killed
DISTURB=disturb
# Links end permanently after some seconds without an answer.
stress "disturbed" "$long" --threads 2 --kill-ms $((1500 * SCALE)) --peers-killed --disturbed
DISTURB=

# Afterwards, everything is as before. Messages that the connection manager sent while the link was
# down are repeated only after more than four seconds; connects that wait for them time out till
# then.
recovers() {
	local end=$((SECONDS + 30 * PATIENCE)) n=0
	until A zrs-selftest hold --what conn --addr "$ADDR_B:7000" </dev/null; do
		n=$((n + 1))
		[ "$SECONDS" -lt "$end" ] || return 1
	done
	echo "after $n attempts"
}
start serve B "listening on" zrs-selftest serve "$ADDR_B:7000" || ktap_bail "serve"
check "connections can be made again" recovers
ktap_say "$(tail -1 "$TMP/out")"
check_pair "a connection after it" xfer --sizes 1,5000,300000 --both
check_pair "and by the ring" xfer --sizes 1,5000,300000 --both --ring
ktap_done
