# shellcheck shell=bash
# For the selftests that move data: programs in the background, and what they report. Sourced
# after ktap.sh.

declare -A PID
SCALE=${TIME_SCALE:-1} # of all time limits: slow kernels
# less N: N, and an eighth of it where everything is slow (a half with TIER=full).
less() {
	local by=8
	if [ "$SCALE" = 1 ]; then by=1; elif [ "${TIER:-ci}" = full ]; then by=2; fi
	echo $((($1 + by - 1) / by))
}
exec {NEVER}<> <(:) # nothing ever comes from here, nor its end: stdin for "hold"
# nap SECONDS: without a process, which takes a third of a second where everything is slow.
nap() { read -rt "$1" -u "$NEVER" _; }
# has FILE TEXT: whether the text is in the file; without a process, too.
has() {
	local all
	IFS= read -rd '' all <"$1"
	[[ $all == *"$2"* ]]
}

# start NAME HOST TEXT CMD...: runs CMD in host A or B ("-": in neither) in the background and waits
# until it says TEXT, if one is given. Its output is in $TMP/NAME.
start() {
	local name=$1 host=$2 text=$3 ns=()
	shift 3
	[ "$host" = - ] || ns=(ip netns exec "zrs$host")
	"${ns[@]}" "$@" <&"$NEVER" >"$TMP/$name" 2>&1 &
	PID[$name]=$!
	at_end "kill -9 $!; wait $!"
	[ -z "$text" ] || says "$name" "$text"
}

# says NAME TEXT [SECONDS]: waits until the program has said TEXT; fails if it ends before.
says() {
	local _
	for _ in $(seq 1 $((${3:-20} * 20 * SCALE))); do
		has "$TMP/$1" "$2" && return 0
		kill -0 "${PID[$1]}" 2>/dev/null || { has "$TMP/$1" "$2" && return 0; break; }
		nap 0.05
	done
	ktap_say "$1 does not say '$2', but:"
	show "$1"
	return 1
}

show() { sed 's/^/#   /' "$TMP/$1" | tail -20; }

# stop NAME [SIGNAL]: ends it, quietly.
stop() {
	kill "-${2:-KILL}" "${PID[$1]}" 2>/dev/null
	wait "${PID[$1]}" 2>/dev/null
	return 0
}

# ended NAME SECONDS: waits until it ends by itself; its exit status, 124 if it does not.
ended() {
	local _
	for _ in $(seq 1 $(($2 * 20 * SCALE))); do
		kill -0 "${PID[$1]}" 2>/dev/null || { wait "${PID[$1]}"; return; }
		nap 0.05
	done
	return 124
}

# check_ended TEXT NAME [SECONDS]: passes if it ends by itself with exit status 0.
check_ended() {
	local rc=0
	ended "$2" "${3:-30}" || rc=$?
	if [ "$rc" = 0 ]; then
		ktap_pass "$1"
	else
		show "$2"
		ktap_fail "$1 (exit status $rc)"
	fi
}

# check_pair TEXT SUBCOMMAND ARGS...: a server in B and a client in A, given the same arguments, and LIMIT seconds.
PORT=7000
check_pair() {
	local text=$1 rc=0 rc2=0
	shift
	set -- "$@" --limit "$((${LIMIT:-60} * SCALE))"
	PORT=$((PORT + 1))
	start server B "listening on" zrs-selftest "$@" --server "$ADDR_B:$PORT" || {
		ktap_fail "$text: the server"
		return 0
	}
	A zrs-selftest "$@" --client "$ADDR_B:$PORT" >"$TMP/client" 2>&1 || rc=$?
	# A server that waits for a client that gave up is ended; one that is about to end is not.
	[ "$rc" = 0 ] || nap 0.5
	ended server "$([ "$rc" = 0 ] && echo 30 || echo 1)" || rc2=$?
	[ "$rc2" != 124 ] || stop server
	if [ "$rc$rc2" = 00 ]; then
		ktap_pass "$text"
	else
		ktap_say "client:"
		grep -v '^ok' "$TMP/client" | sed 's/^/#   /' | tail -20
		ktap_say "server:"
		grep -v '^ok' "$TMP/server" | sed 's/^/#   /' | tail -20
		ktap_fail "$text (exit status of the client $rc, of the server $rc2)"
	fi
}

# check_lines CMD...: each line "ok - ..." or "not ok - ..." of its output is a result.
check_lines() {
	local rc=0 line bad=0 n=0
	"$@" >"$TMP/lines" 2>&1 || rc=$?
	while IFS= read -r line; do
		case $line in
		"ok - "*) ktap_pass "${line#ok - }" ;;
		"not ok - "*) ktap_fail "${line#not ok - }"; bad=1 ;;
		*) ktap_say "${line#\# }"; continue ;;
		esac
		n=$((n + 1))
	done <"$TMP/lines"
	if [ "$rc" != 0 ] && [ "$bad" = 0 ] || [ "$n" = 0 ]; then
		ktap_fail "$* (exit status $rc)"
	fi
}

# counter NAME: a counter of the module.
counter() { zrs stats --json | tr ',{}' '\n' | sed -n "s/^\"$1\"://p"; }

# cache NAME: a counter of the cache that the pools of both hosts lie in.
cache() { zrs pool --json | sed 's/.*"caches":\[{\([^}]*\)}.*/\1/' | tr ',' '\n' | sed -n "s/^\"$1\"://p"; }

# baseline_key: this kernel's series, its compiler and QEMU's version, as tests/baseline.json names them.
baseline_key() {
	local series compiler
	series=$(uname -r | sed 's/^\([0-9]*\.[0-9]*\).*/\1/')
	compiler=$(sed -n 's/.*gcc[^ ]* ([^)]*) \([0-9]*\)\..*/gcc-\1/p; s/.*clang version \([0-9]*\)\..*/clang-\1/p' /proc/version)
	echo "$series ${compiler:-unknown} ${ZRS_QEMU:-no-qemu}"
}

# unpinned: no page of a program's is held any more, or will be in a moment.
unpinned() {
	local _ n
	for _ in $(seq 1 $((100 * SCALE))); do
		n=$(counter pages_pinned)
		[ "$n" != 0 ] || return 0
		nap 0.1
	done
	echo "$n pages"
	return 1
}

# kernel_kb: kernel memory that no cache will give back, caches and slabs without objects being emptied before. Pages
# of the pools are not in it.
kernel_kb() {
	local slab
	sync
	echo 3 >/proc/sys/vm/drop_caches
	for slab in /sys/kernel/slab/*/shrink; do echo 1 >"$slab"; done
	awk '/^(SUnreclaim|VmallocUsed|PageTables|Percpu):/ { s += $2 } END { print s }' /proc/meminfo
}
