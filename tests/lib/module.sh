# shellcheck shell=bash
# Loading and unloading zrs.ko in the guest. Sourced.

ZRS_KO=${ZRS_KO:-/zrs/build/module/zrs.ko}

# pins_held: how many pages are pinned now by anyone in this kernel, as the kernel itself counts.
pins_held() {
	local name n acquired=0 released=0
	# Fold the per-CPU counters.
	echo 1 >/proc/sys/vm/stat_refresh
	while read -r name n; do
		case $name in
		nr_foll_pin_acquired) acquired=$n ;;
		nr_foll_pin_released) released=$n ;;
		esac
	done </proc/vmstat
	echo $((acquired - released))
}

# pins_left: those since the module was loaded.
pins_left() { echo $(($(pins_held) - $(cat /run/zrs-pins))); }

# lean_module: the path of $ZRS_KO without what debuggers read, in memory. The whole is tens of times as large.
lean_module() {
	local lean=/run/lean${ZRS_KO//\//-}
	[ -e "$lean" ] || strip --strip-debug -o "$lean" "$ZRS_KO" || lean=$ZRS_KO
	echo "$lean"
}

# soft_roce [DRIVER [PARAM=VALUE]]: Soft-RoCE anew, the kernel's or that with the limits of a driver's device
# (tests/vm/build-device).
soft_roce() {
	rmmod rdma_rxe || return 1
	if [ -n "${1:-}" ]; then
		insmod "/zrs/build/device-$1${ZRS_KERNEL:+-$ZRS_KERNEL}/rdma_rxe.ko" ${2:+"$2"}
	else
		modprobe rdma_rxe
	fi
}

# zrs_load [PARAM=VALUE...]: the module, and before it what it needs. The parameters of ZRS_PARAMS come first; the
# last value of a parameter wins.
zrs_load() {
	local deps pins _
	# What earlier tests had pinned, by other means than the module's, may still be on its way.
	for _ in $(seq 1 25); do
		pins=$(pins_held)
		[ -e /run/zrs-pins ] && [ "$pins" -gt "$(cat /run/zrs-pins)" ] || break
		sleep 0.2
	done
	echo "$pins" >/run/zrs-pins
	# Once a boot; they stay.
	if [ ! -e /run/zrs-depends ]; then
		deps=$(modinfo -F depends "$ZRS_KO" | tr ',' ' ')
		# shellcheck disable=SC2086 # a list
		[ -z "$deps" ] || modprobe -a $deps || return 1
		: >/run/zrs-depends
	fi
	# Without ZRS_PARAMS: a busy machine takes longer than the module's default for one step of a connect().
	# shellcheck disable=SC2086 # a list
	insmod "$(lean_module)" ${ZRS_PARAMS-connect_timeout_ms=6000} "$@" || return 1
	# Where its code is: traces that are read after it is gone need that (tests/vm/decode).
	[ "${ZRS_KERNEL:-stock}" = stock ] || cat /sys/module/zrs/sections/.text >>/results/zrs-bases
}

zrs_loaded() { [ -d /sys/module/zrs ]; }

# zrs_unload: 0 only if it is gone; tries for some seconds, as orphans have a deadline.
zrs_unload() {
	local _
	for _ in $(seq 1 $((50 * ${TIME_SCALE:-1} * ${LIMIT_SCALE:-1}))); do
		rmmod zrs 2>/run/rmmod.err && return 0
		zrs_loaded || return 0
		sleep 0.2
	done
	cat /run/rmmod.err
	return 1
}

# zrs_idle: 0 once nothing is pinned, leased, open or alive by the module's counters, and the
# kernel's pin count is that of before the module was loaded; prints the rest after 15 s (channels
# without sockets may take 10 to end).
zrs_idle() {
	local left pins stats end=$((SECONDS + 15 * ${TIME_SCALE:-1} * ${LIMIT_SCALE:-1}))
	while stats=$(zrs stats --json) || { echo "zrs stats failed"; return 1; }; do
		left=$(tr ',{}' '\n' <<<"$stats" |
			sed -nE 's/^"(pages_pinned|sockets|channels|pool_used)":([1-9].*)/\1=\2/p' | tr '\n' ' ')
		pins=$(pins_left)
		[ "$pins" = 0 ] || left+="nr_foll_pin=$pins"
		[ -n "$left" ] || return 0
		[ "$SECONDS" -lt "$end" ] || break
		sleep 0.2
	done
	echo "$left"
	return 1
}
