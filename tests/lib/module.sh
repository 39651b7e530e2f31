# shellcheck shell=bash
# Loading and unloading zrs.ko in the guest. Sourced.

ZRS_KO=${ZRS_KO:-/zrs/build/module/zrs.ko}

# zrs_load [PARAM=VALUE...]: the module, and before it what it needs.
zrs_load() {
	local deps
	deps=$(modinfo -F depends "$ZRS_KO" | tr ',' ' ')
	# shellcheck disable=SC2086 # a list
	[ -z "$deps" ] || modprobe -a $deps || return 1
	insmod "$ZRS_KO" "$@"
}

zrs_loaded() { [ -d /sys/module/zrs ]; }

# zrs_unload: 0 only if it is gone; tries for some seconds, as orphans have a deadline.
zrs_unload() {
	local _
	for _ in $(seq 1 50); do
		rmmod zrs 2>/run/rmmod.err && return 0
		zrs_loaded || return 0
		sleep 0.2
	done
	cat /run/rmmod.err
	return 1
}
