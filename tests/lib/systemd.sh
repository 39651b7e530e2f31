# shellcheck shell=bash
# For the selftests of units: systemd as the first process of a container in one of the hosts. Sourced after ktap.sh and
# selftests/lib.sh.

# systemd_up HOST UNITS: with the units of that folder, of which test.target is started. Where the root has no systemd,
# the test is skipped and ends.
systemd_up() {
	local group=/sys/fs/cgroup/zrs-systemd
	[ -e /usr/lib/systemd/systemd ] || {
		ktap_skip "systemd" "the root does not have it"
		ktap_done
	}
	# Where the units look for it.
	[ -e /usr/bin/zrs ] || {
		ln -s "$(command -v zrs)" /usr/bin/zrs
		at_end "rm /usr/bin/zrs"
	}
	cat >"$TMP/first" <<-SH
		mount -t proc proc /proc && mount -t cgroup2 cgroup2 /sys/fs/cgroup && mount -t tmpfs tmpfs /run &&
			mkdir -p /run/systemd/system && cp -r $2/. /run/systemd/system/ && hostname zrs-test
		exec env -i container=other PATH=\$PATH /usr/lib/systemd/systemd --system --unit=test.target --show-status=no \
			--log-target=console --default-standard-output=null
	SH
	mkdir $group
	at_end "for _ in 1 2 3 4 5 6 7 8 9; do find $group -depth -type d -exec rmdir {} + && break; sleep 0.3; done"
	start systemd "$1" "" bash -c "echo \$\$ >$group/cgroup.procs && exec unshare --cgroup --mount --pid --uts --ipc --fork --kill-child bash $TMP/first"
}

# within CMD...: it succeeds in a moment.
within() {
	local _
	for _ in $(seq 1 $((600 * PATIENCE))); do
		"$@" && return 0
		kill -0 "${PID[systemd]}" || break
		nap 0.1
	done
	show systemd
	return 1
}

# inside CMD...: in the container.
inside() { nsenter --target "$(pgrep -P "${PID[systemd]}")" --mount --pid --cgroup -- "$@"; }
