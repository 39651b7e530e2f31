#!/bin/bash
# Many processes and threads in both hosts that do everything with sockets at once: first undisturbed,
# where no connection may break; then killed at random; then while links and devices go and come, memory
# is short, and the module is asked to leave. What they do follows from SEED.
# rows: B9 B11 B1 B4 E3 E4 E5 Z2
# timeout: 200
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
seed=${SEED:-1}
seconds=20 most=300k
[ "${TIER:-ci}" != full ] || seconds=180 most=2M
ktap_say "SEED=$seed"
port=7100
group=/sys/fs/cgroup/stress
mkdir "$group"
echo "+memory" >/sys/fs/cgroup/cgroup.subtree_control 2>/dev/null
at_end "echo 1 >$group/cgroup.kill; sleep 1; rmdir $group"

# stress_one HOST SEED ARGS...: in the background, in a control group of its own.
stress_one() {
	local host=$1 own=$2 addr=ADDR_$1
	shift 2
	# The control group is not to be seen from within a host.
	# shellcheck disable=SC2016 # for the inner shell
	start "stress$host" - "# replay" bash -c 'echo $$ >"$0/cgroup.procs" && exec ip netns exec "$@"' \
		"$group" "zrs$host" zrs-selftest stress --seed "$own" --threads 4 --processes 2 \
		--local "${!addr}:$port" --peers "$ADDR_A:$port,$ADDR_B:$port" --most "$most" \
		--patience $((40 * SCALE)) "$@"
}

# results HOST TEXT: what it found.
results() {
	local rc=0 line
	ended "stress$1" $((seconds + 60)) || rc=$?
	while IFS= read -r line; do
		case $line in
		"ok - "*) ktap_pass "$2, host $1: ${line#ok - }" ;;
		"not ok - "*) ktap_fail "$2, host $1: ${line#not ok - }" ;;
		*) ktap_say "${line#\# }" ;;
		esac
	done <"$TMP/stress$1"
	[ "$rc" = 0 ] || [ "$rc" = 1 ] || ktap_fail "$2, host $1: exit status $rc"
}

# stress TEXT SECONDS ARGS...: in both hosts at once; DISTURB is run meanwhile.
DISTURB=
stress() {
	local text=$1 rest=$2
	shift 2
	port=$((port + 10))
	stress_one A "$seed" --seconds "$rest" "$@" || ktap_bail "$text"
	stress_one B $((seed + 1)) --seconds "$rest" "$@" || ktap_bail "$text"
	[ -z "$DISTURB" ] || "$DISTURB" "$rest"
	results A "$text"
	results B "$text"
	check "$text: nothing is left behind" zrs_idle
}

# disturb SECONDS: everything that an administrator, or the world, may do to it.
disturb() {
	local end=$((SECONDS + $1)) n=0 refused=0 asked=0 dev host
	while [ "$SECONDS" -lt "$end" ]; do
		n=$((n + 1))
		asked=$((asked + 1))
		rmmod zrs 2>/dev/null || refused=$((refused + 1))
		zrs stats >/dev/null
		A zrs ss >/dev/null
		B zrs links >/dev/null
		zrs pool >/dev/null
		cat /sys/kernel/debug/zrs/* >/dev/null 2>&1
		case $((n % 8)) in
		2 | 6)
			host=$([ $((n % 16)) -lt 8 ] && echo A || echo B)
			dev=DEV_$host
			rdma link delete "${!dev}"
			sleep 0.$((RANDOM % 10))
			ip netns exec "zrs$host" rdma link add "${!dev}" type rxe netdev "v${host,}" ||
				ktap_fail "disturbed: a new device"
			;;
		4)
			A ip link set va down
			sleep 0.$((RANDOM % 10))
			A ip link set va up
			;;
		5) echo $((12 << 20)) >"$group/memory.high" ;;
		7) echo max >"$group/memory.high" ;;
		esac
		sleep 0.2
	done
	echo max >"$group/memory.high"
	check_eq "disturbed: rmmod is refused" "$asked" "$refused"
	ktap_say "$n rounds of disturbance"
}

third=$((seconds / 3 + 1))
stress "undisturbed" "$third"
stress "killed" "$third" --kill-ms 500 --peers-killed
DISTURB=disturb
stress "disturbed" "$((third * 2))" --kill-ms 1500 --peers-killed --disturbed
DISTURB=
# After all that, everything is as it was.
check_pair "a connection after it" xfer --sizes 1,5000,300000 --both
check_pair "and by the ring" xfer --sizes 1,5000,300000 --both --ring
ktap_done
