# shellcheck shell=bash
# For the selftests that move data: programs in the background, and their results. Sourced after
# ktap.sh. In a run between two machines (tests/two-vm/run), A and B are those: tests/two-vm/lib.sh replaces
# the functions that differ.

declare -A PID
export PYTHONDONTWRITEBYTECODE=1 # the tests' own modules
SCALE=${TIME_SCALE:-1} # of all time limits: slow kernels
PATIENCE=$((SCALE * ${LIMIT_SCALE:-1})) # of waits for what must happen: busy machines, too
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

# answer_all_icmp: hosts A and B answer each UDP datagram for a closed port. By default a host answers
# another one six times, and then once in a second.
answer_all_icmp() {
	local ns limit
	for ns in A B; do
		for limit in ipv4/icmp_ratelimit ipv6/icmp/ratelimit; do
			set_limit $ns $limit 0
			at_end "set_limit $ns $limit 1000"
		done
	done
}
set_limit() { "$1" sh -c "echo $3 >/proc/sys/net/$2"; }

# log_all: the kernel log gets each line of the module, without the rate limit of the network's messages. Lines of
# other tests that were suppressed are not reported.
log_all() {
	local limit=/proc/sys/net/core/message_cost
	at_end "echo $(cat "$limit") >$limit"
	echo 0 >"$limit"
}

# start NAME HOST TEXT CMD...: runs CMD in host A or B ("-": in neither) in the background and waits
# until it says TEXT, if one is given. Its output is in $TMP/NAME.
start() {
	local name=$1 host=$2 text=$3 ns=()
	shift 3
	[ "$host" = - ] || ns=(/run/netns-exec "zrs$host")
	"${ns[@]}" "$@" <&"$NEVER" >"$TMP/$name" 2>&1 &
	PID[$name]=$!
	at_end "kill -9 $!; wait $!"
	[ -z "$text" ] || says "$name" "$text"
}

# says NAME TEXT [SECONDS]: waits until the program has said TEXT; fails if it ends before.
says() {
	local _
	for _ in $(seq 1 $((${3:-20} * 20 * PATIENCE))); do
		has "$TMP/$1" "$2" && return 0
		runs "${PID[$1]}" || { has "$TMP/$1" "$2" && return 0; break; }
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

# signal NAME SIGNAL: to a program that goes on; alive NAME: whether it runs.
signal() { kill "-$2" "${PID[$1]}"; }
alive() { kill -0 "${PID[$1]}"; }

# ended NAME SECONDS: waits for its end; returns its exit status, 124 if it does not end.
ended() {
	local _
	for _ in $(seq 1 $(($2 * 20 * PATIENCE))); do
		runs "${PID[$1]}" || { wait "${PID[$1]}"; return; }
		nap 0.05
	done
	return 124
}

# check_ended TEXT NAME [SECONDS]: passes if it ends with exit status 0.
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

# check_becomes TEXT EXPECTED CMD...: the command says that in the end.
check_becomes() {
	local text=$1 expected=$2 got _
	shift 2
	for _ in $(seq 1 $((100 * PATIENCE))); do
		got=$("$@")
		[ "$got" != "$expected" ] || break
		nap 0.1
	done
	check_eq "$text" "$expected" "$got"
}

# check_pair TEXT SUBCOMMAND ARGS...: a server in B and a client in A, given the same arguments, and
# LIMIT seconds; both are PROGRAM, or zrs-selftest.
PORT=7000
check_pair() {
	local text=$1 program=${PROGRAM:-zrs-selftest} rc=0 rc2=0
	shift
	set -- "$@" --limit "$((${LIMIT:-60} * SCALE))"
	PORT=$((PORT + 1))
	start server B "listening on" "$program" "$@" --server "$ADDR_B:$PORT" || {
		ktap_fail "$text: the server"
		return 0
	}
	A "$program" "$@" --client "$ADDR_B:$PORT" >"$TMP/client" 2>&1 || rc=$?
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

# check_lines CMD...: each line "ok - ..." or "not ok - ..." of its output is a result, and so is
# "skip - NAME: REASON".
check_lines() {
	local rc=0 line bad=0 n=0
	"$@" >"$TMP/lines" 2>&1 || rc=$?
	while IFS= read -r line; do
		case $line in
		"ok - "*) ktap_pass "${line#ok - }" ;;
		"not ok - "*) ktap_fail "${line#not ok - }"; bad=1 ;;
		"skip - "*": "*)
			line=${line#skip - }
			ktap_skip "${line%%: *}" "${line#*: }"
			;;
		*) ktap_say "${line#\# }"; continue ;;
		esac
		n=$((n + 1))
	done <"$TMP/lines"
	if [ "$rc" != 0 ] && [ "$bad" = 0 ] || [ "$n" = 0 ]; then
		ktap_fail "$* (exit status $rc)"
	fi
}

# define_probes TEXT PROBE...: mounts tracefs at $TRACING, and defines kprobes "NAME WHERE ARGS" of
# the group zrstest, which are not enabled. Where the kernel has no kprobe events, TEXT is skipped
# and the test ends.
TRACING=/sys/kernel/tracing
define_probes() {
	local text=$1 probe
	shift
	mount -t tracefs tracefs $TRACING 2>/dev/null
	[ -e $TRACING/kprobe_events ] || {
		ktap_skip "$text" "this kernel has no kprobe events"
		ktap_done
	}
	at_end "echo 0 >$TRACING/events/zrstest/enable; echo >$TRACING/kprobe_events; echo >$TRACING/trace"
	echo >$TRACING/kprobe_events
	for probe in "$@"; do
		echo "p:zrstest/$probe" >>$TRACING/kprobe_events || ktap_bail "the probe $probe"
	done
	echo >$TRACING/trace
}

# watch_large: traces allocations of more than eight pages; end_large: those of the kernel's threads, which make links,
# are in $TMP/large.
watch_large() {
	LARGE=$TRACING/events/kmem/mm_page_alloc
	mount -t tracefs tracefs $TRACING 2>/dev/null
	[ -e $LARGE ] || {
		ktap_skip "allocations" "this kernel has no event of the page allocator"
		ktap_done
	}
	at_end "echo 0 >$LARGE/enable; echo 0 >$LARGE/filter; echo >$TRACING/trace"
	echo 'order > 3' >$LARGE/filter
	echo >$TRACING/trace
	echo 1 >$LARGE/enable
}
end_large() {
	echo 0 >$LARGE/enable
	# Soft-RoCE's queues are vmalloc()'s, which tries large ones without a wait.
	grep 'mm_page_alloc:' $TRACING/trace | grep -v 'gfp_flags=GFP_NOWAIT' | grep -E '^ *k(worker|rdma)' >"$TMP/large"
	cat "$TMP/large"
}

# counter NAME: a counter of the module.
counter() { zrs stats --json | tr ',{}' '\n' | sed -n "s/^\"$1\"://p"; }

# cache NAME: a counter of the cache that the pools of both hosts lie in.
cache() { zrs pool --json | sed 's/.*"caches":\[{\([^}]*\)}.*/\1/' | tr ',' '\n' | sed -n "s/^\"$1\"://p"; }

# baseline_key: this kernel's series, its compiler and QEMU's version, as tests/baseline.json names
# them.
baseline_key() {
	local series compiler
	series=$(uname -r | sed 's/^\([0-9]*\.[0-9]*\).*/\1/')
	compiler=$(sed -n 's/.*gcc[^ ]* ([^)]*) \([0-9]*\)\..*/gcc-\1/p; s/.*clang version \([0-9]*\)\..*/clang-\1/p' /proc/version)
	echo "$series ${compiler:-unknown} ${ZRS_QEMU:-no-qemu}"
}

# set_param NAME VALUE: a parameter of the module; that of both machines, if there are two.
set_param() { echo "$2" >"/sys/module/zrs/parameters/$1"; }

# unpinned: the module's count of pinned pages drops to 0, and the kernel's to that of before the module was loaded.
unpinned() {
	local _ n pins
	for _ in $(seq 1 $((100 * PATIENCE))); do
		n=$(counter pages_pinned) pins=$(pins_left)
		[ "$n/$pins" != 0/0 ] || return 0
		nap 0.1
	done
	echo "$n pages, $pins pins"
	return 1
}

# kernel_memory NAME: the kernel's own memory after all caches have been shrunk. $TMP/NAME.slabs
# gets "objects bytes cache" for each slab cache that is not reclaimable, $kernel_kb the KiB of
# these objects, vmalloc, page tables and per-CPU memory. Objects are counted rather than slab
# pages, since a page stays until its last object is free. Pools are not included.
# shellcheck disable=SC2034 # the caller reads it
kernel_memory() {
	local slab
	sync
	# Objects that are freed after a grace period.
	nap 1
	echo 3 >/proc/sys/vm/drop_caches
	for slab in /sys/kernel/slab/*/shrink; do echo 1 >"$slab"; done
	grep -l '^1' /sys/kernel/slab/*/reclaim_account >"$TMP/reclaimed"
	kernel_kb=$(awk -v out="$TMP/$1.slabs" '
		FILENAME ~ /reclaimed/ { split($1, path, "/"); skip[path[5]] = 1; next }
		FILENAME ~ /slabinfo/ {
			if (FNR > 2 && !($1 in skip)) {
				print $2, $2 * $4, $1 >out
				bytes += $2 * $4
			}
			next
		}
		/^(VmallocUsed|PageTables|Percpu):/ { kb += $2 }
		END { print kb + int(bytes / 1024) }' "$TMP/reclaimed" /proc/slabinfo /proc/meminfo)
}

# slabs_grown BEFORE AFTER N: prints the caches that have grown by more than N objects; fails if
# there is one.
slabs_grown() {
	awk -v most="$3" '
		FNR == NR { before[$3] = $1; next }
		$1 - before[$3] > most { print $3 ": " $1 - before[$3] " objects more, at most " most; bad = 1 }
		END { exit bad }' "$TMP/$1.slabs" "$TMP/$2.slabs"
}

# no_leak BEFORE AFTER KIB N: kernel memory, which has grown by KIB, is where it was before N
# connections. Not on the debug kernel, which keeps freed memory for a while, and looks for leaks
# itself.
no_leak() {
	[ "${ZRS_KERNEL:-stock}" = stock ] || return 0
	ktap_say "caches with 20 objects more: $(slabs_grown "$1" "$2" 20 | sed 's/ objects.*//' | tr '\n' ';')"
	check "kernel memory is where it was" [ "$3" -lt $((256 + $4 * 8 / 1024)) ]
	# One leaked object for fifty connections, and a few sheaves, where each CPU keeps up to
	# 60 free objects of a cache.
	check "no cache has grown" slabs_grown "$1" "$2" $((240 + $4 / 50))
}

if [ -n "${ZRS_MACHINES:-}" ]; then
	. "$(dirname "${BASH_SOURCE[0]}")/../two-vm/lib.sh"
fi
