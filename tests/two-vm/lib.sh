# shellcheck shell=bash
# Two QEMU machines, joined by a QEMU network: booting them, running commands in them, and faults.
# Sourced on the machine, after ktap.sh by the tests. Their RDMA device is one of Soft-RoCE; with PROVIDER=siw of
# software iWARP.
#
#   A CMD..., B CMD...        run a command in guest A (10.77.0.1) or B (10.77.0.2); with ZRS_PAIR_THIRD=1 there may
#                             be a guest C (10.77.0.3) too
#   start, says, stop, signal, alive, ended, check_ended, check_pair, check_lines: as in tests/selftests/lib.sh
#   counter, cache, set_param, unpinned, zrs_idle: as there and in tests/lib/module.sh, for both: sums
#   vm_up HOST                boots a guest whose machine is gone
#   vm_kill HOST              kill -9 of its QEMU
#   vm_pause, vm_go HOST      its processors stop, and what is sent to it is lost; and it goes on
#   wire_cut, wire_mend       packets get lost without a word; and no more
#
# Guest A's QEMU listens for B's on a unix socket. In each QEMU a hub is between the NIC and that
# socket, so that the wire can be cut without the guest seeing its carrier go. C's wire is on A's hub, which passes on
# what B and C send to each other without guest A.

PAIR=${PAIR:-${ZRS_TOP:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}/results/two-vm}
# A selftest has that already, which sources this.
if declare -F ktap_start >/dev/null && ! declare -F check_pair >/dev/null; then
	. "$(dirname "${BASH_SOURCE[0]}")/../selftests/lib.sh"
fi
export SCALE=${TIME_SCALE:-3} # two emulated machines share the processors
unset -f hosts_up hosts_down host_up zrs_load zrs_unload zrs_loaded pins_held 2>/dev/null

declare -A JOB
JOBS=0

pair_top() { (cd "$PAIR/../.." && pwd); }
# qemu_pid HOST: the process id of its QEMU, if that lives.
qemu_pid() {
	local pid
	pid=$(cat "$PAIR/$1/qemu.pid" 2>/dev/null) && [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null && echo "$pid"
}

# vm_boot HOST: starts the guest; vm_ready waits for it.
vm_boot() {
	local host=$1 dir=$PAIR/$1 in=/zrs/results/${PAIR##*/} address wire third=() q opts=()
	# TCP repeats what is lost for minutes, whatever ack_timeout_ms says: heartbeats tell that a peer is gone.
	[ "${PROVIDER:-rxe}" != siw ] || opts+=(--env "ZRS_PARAMS=connect_timeout_ms=6000 heartbeat_ms=1000 dead_ms=4000")
	case $host in
	A)
		address=10.77.0.1 wire="stream,id=wire,server=on,addr.type=unix,addr.path=$in/wire" mac=52:54:00:77:00:01
		[ "${ZRS_PAIR_THIRD:-0}" = 0 ] || third=(-netdev "stream,id=wire3,server=on,addr.type=unix,addr.path=$in/wire3"
			-netdev "hubport,id=inner3,hubid=0,netdev=wire3")
		;;
	B) address=10.77.0.2 wire="stream,id=wire,server=off,addr.type=unix,addr.path=$in/wire,reconnect-ms=200" mac=52:54:00:77:00:02 ;;
	C) address=10.77.0.3 wire="stream,id=wire,server=off,addr.type=unix,addr.path=$in/wire3,reconnect-ms=200" mac=52:54:00:77:00:03 ;;
	esac
	mkdir -p "$dir/jobs"
	rm -f "$dir/qemu.pid" "$dir"/{,qmp.}ready "$dir"/jobs/* "$dir"/{ctl,qmp}.{in,out}
	mkfifo "$dir"/{ctl,qmp}.{in,out}
	# Without mergeable buffers the NIC has no page pools (Documentation/testing.rst, finding
	# 8).
	for q in -netdev "$wire" -netdev hubport,id=inner,hubid=0,netdev=wire "${third[@]}" -netdev hubport,id=net,hubid=0 \
		-device "virtio-net-pci,netdev=net,mac=$mac,host_mtu=9000,${ZRS_PAIR_NIC:-mrg_rxbuf=off},romfile=" \
		-chardev pipe,id=ctl,path=/results/ctl -device virtserialport,chardev=ctl,name=zrs \
		-chardev pipe,id=qmp,path=/results/qmp -mon chardev=qmp,mode=control -pidfile /results/qemu.pid; do
		opts+=(--qemu "$q")
	done
	setsid "$(pair_top)/tests/vm/run" --agent --smp "${ZRS_PAIR_SMP:-1}" --timeout "${ZRS_PAIR_LIMIT:-7200}" \
		--results "$dir" --env "HOST=$host" --env "ADDRESS=$address" --env "TIME_SCALE=$SCALE" \
		--env "PROVIDER=${PROVIDER:-rxe}" "${opts[@]}" \
		>"$dir/run.log" 2>&1 </dev/null &
	echo "$!" >"$dir/run.pid"
	disown
}

# vm_ready HOST: waits until the guest takes commands.
vm_ready() {
	local dir=$PAIR/$1 _
	for _ in $(seq 1 $((120 * SCALE * 5))); do
		if [ -s "$dir/ready" ]; then
			[ -e "$dir/qmp.ready" ] || qmp "$1" '{"execute":"qmp_capabilities"}' || return 1
			touch "$dir/qmp.ready"
			return 0
		fi
		kill -0 "$(cat "$dir/run.pid")" 2>/dev/null || break
		sleep 0.2
	done
	echo "guest $1 does not come up:"
	tail -n 5 "$dir/console.log" "$dir/run.log" "$dir/serial.log"
	return 1
}
vm_up() { vm_boot "$1" && vm_ready "$1"; }

# vm_kill HOST: as if its power had gone.
vm_kill() {
	local pid _
	pid=$(qemu_pid "$1") || return 0
	kill -9 "$pid"
	for _ in $(seq 1 100); do
		kill -0 "$(cat "$PAIR/$1/run.pid")" 2>/dev/null || return 0
		sleep 0.1
	done
}

# qmp HOST JSON: a command for its QEMU.
qmp() {
	local line to from rc=1
	qemu_pid "$1" >/dev/null || { echo "QEMU $1 does not run"; return 1; }
	exec {to}<>"$PAIR/$1/qmp.in" {from}<>"$PAIR/$1/qmp.out"
	echo "$2" >&"$to"
	while read -rt 10 -u "$from" line; do
		case $line in
		*'"return"'*) rc=0; break ;;
		*'"error"'*) echo "$line"; break ;;
		esac
	done
	exec {to}>&- {from}>&-
	return $rc
}
# Without the wire cut as well, QEMU would keep packets for the guest, and the sender's NIC would
# stand still with it: as no real network does.
vm_pause() { wire "$1" false && qmp "$1" '{"execute":"stop"}'; }
vm_go() { wire "$1" true && qmp "$1" '{"execute":"cont"}'; }
wire() { qmp "$1" "{\"execute\":\"set_link\",\"arguments\":{\"name\":\"wire\",\"up\":$2}}"; }
wire_cut() { wire A false && wire B false; }
wire_mend() { wire A true && wire B true; }

# ask HOST CMD...: starts the command there; its job is in $ASKED. Functions of the agent are
# commands too.
ask() {
	local host=$1 to text
	shift
	JOBS=$((JOBS + 1))
	ASKED=$$.$JOBS.$RANDOM
	printf -v text '%q ' "$@"
	: >"$PAIR/$host/jobs/$ASKED"
	exec {to}<>"$PAIR/$host/ctl.in"
	printf '%s %s\n' "$ASKED" "$text" >&"$to"
	exec {to}>&-
}

# answered HOST JOB: its exit status is there, in $STATUS.
answered() {
	STATUS=
	read -r STATUS 2>/dev/null <"$PAIR/$1/jobs/$2.rc" && [ -n "$STATUS" ]
}

# on HOST CMD...: runs it there and prints what it says; its exit status, 125 if the guest does not
# answer in time.
on() {
	local host=$1 _
	ask "$@"
	for _ in $(seq 1 $((60 * SCALE * 10))); do
		if answered "$host" "$ASKED"; then
			cat "$PAIR/$host/jobs/$ASKED"
			return "$STATUS"
		fi
		qemu_pid "$host" >/dev/null || break
		sleep 0.1
	done
	cat "$PAIR/$host/jobs/$ASKED"
	echo "guest $host does not answer"
	return 125
}
A() { on A "$@"; }
B() { on B "$@"; }
C() { on C "$@"; }

# start NAME HOST TEXT CMD...: runs CMD in guest A or B in the background and waits until it says
# TEXT, if one is given. Its output is in $TMP/NAME.
start() {
	local name=$1 host=$2 text=$3
	shift 3
	# The shell that runs it becomes the program, so that its process id is the program's.
	ask "$host" exec "$@"
	JOB[$name]=$host/$ASKED
	ln -sfn "$PAIR/$host/jobs/$ASKED" "$TMP/$name"
	[ -z "$text" ] || says "$name" "$text"
}

# says NAME TEXT [SECONDS]: waits until the program has said TEXT; fails if it ends before.
says() {
	local _ host=${JOB[$1]%%/*} job=${JOB[$1]#*/}
	for _ in $(seq 1 $((${3:-20} * 20 * SCALE))); do
		grep -q -- "$2" "$TMP/$1" && return 0
		answered "$host" "$job" && { grep -q -- "$2" "$TMP/$1" && return 0; break; }
		sleep 0.05
	done
	ktap_say "$1 does not say '$2', but:"
	show "$1"
	return 1
}

# stop NAME [SIGNAL]: ends it, quietly.
stop() {
	local host=${JOB[$1]%%/*} job=${JOB[$1]#*/}
	on "$host" job_signal "$job" "${2:-KILL}" >/dev/null
	ended "$1" 5
	return 0
}

# signal NAME SIGNAL: to a program that goes on; alive NAME: whether it runs.
signal() { on "${JOB[$1]%%/*}" job_signal "${JOB[$1]#*/}" "$2"; }
alive() { signal "$1" 0; }

# ended NAME SECONDS: waits for its end; returns its exit status, 124 if it does not end.
ended() {
	local _ host=${JOB[$1]%%/*} job=${JOB[$1]#*/}
	for _ in $(seq 1 $(($2 * 20 * SCALE))); do
		answered "$host" "$job" && return "$STATUS"
		sleep 0.05
	done
	return 124
}

# links HOST: how many it has.
links() { on "$1" zrs links --json | grep -o '"remote"' | wc -l; }
no_links() { [ "$(links "$1")" = 0 ]; }

# What both machines have together: selftests ask so in a kernel that has both hosts.
counter_of() { on "$1" zrs stats --json | tr ',{}' '\n' | sed -n "s/^\"$2\"://p"; }
cache_of() { on "$1" zrs pool --json | sed 's/.*"caches":\[{\([^}]*\)}.*/\1/' | tr ',' '\n' | sed -n "s/^\"$2\"://p"; }
counter() { echo $(($(counter_of A "$1") + $(counter_of B "$1"))); }
cache() { echo $(($(cache_of A "$1") + $(cache_of B "$1"))); }
pins_left() { echo $(($(A pins_left) + $(B pins_left))); }
set_param() { A eval "echo $2 >/sys/module/zrs/parameters/$1" && B eval "echo $2 >/sys/module/zrs/parameters/$1"; }
zrs_idle() { A zrs_idle && B zrs_idle; }

# check_within TEXT SECONDS CMD...: passes if the command succeeds in that time, however often it
# fails before.
check_within() {
	local text=$1 t0=$SECONDS limit=$(($2 * SCALE)) n=0
	shift 2
	while [ $((SECONDS - t0)) -le "$limit" ]; do
		n=$((n + 1))
		if "$@" >"$TMP/out" 2>&1; then
			ktap_say "attempt $n, after $((SECONDS - t0)) s"
			ktap_pass "$text"
			return 0
		fi
	done
	sed 's/^/#   /' "$TMP/out" | tail -20
	ktap_fail "$text ($n attempts in $((SECONDS - t0)) s)"
}
