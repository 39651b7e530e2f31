#!/bin/bash
# Programs that make sockets all the while under `zrs run`, `--static` and `--cgroup` see no error when the module is
# drained, goes and comes back. When it goes without being drained, those of the first two see none, and those of
# the third may see some at that moment: until the module that goes has taken its protocol out of the kernel's table.
# rows: B14 B15
# params: connect_timeout_ms=5000 fallback_ms=3000
# timeout: 180
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
ways=(preload static)
if [ -e /sys/kernel/btf/vmlinux ] && grep -qw update_socket_protocol /proc/kallsyms; then
	mountpoint -q /sys/fs/bpf || {
		mount -t bpf bpf /sys/fs/bpf || ktap_bail "bpffs"
		at_end "umount /sys/fs/bpf"
	}
	zrs bpf load || ktap_bail "zrs bpf load"
	at_end "zrs bpf unload"
	ways+=(cgroup)
else
	ktap_skip "--cgroup" "this kernel has no type information, or no update_socket_protocol()"
fi
# now_are PROTOCOL WHEN: what each program gets becomes this. The preload library asks again after ten seconds.
now_are() {
	local way _ seen
	for way in "${ways[@]}"; do
		for _ in $(seq 1 $((300 * PATIENCE))); do
			seen=$(grep -v '^error' "$TMP/$way" | tail -1)
			[ "$seen" != "$1" ] || break
			nap 0.1
		done
		check_eq "$2: $way: sockets are $1" "$1" "$seen"
	done
}
# no_errors TEXT WAY...: none of these programs has had one.
no_errors() {
	local text=$1 way
	shift
	for way in "$@"; do
		check_eq "$way: no error: $text" "" "$(grep '^error' "$TMP/$way" | sort | uniq -c | tr -s ' \n' ' ')"
	done
}

for way in "${ways[@]}"; do
	how=()
	[ "$way" = preload ] || how=("--$way")
	start "$way" B "zrs" zrs run "${how[@]}" -- python3 -u "$(dirname "$0")/makes.py" || ktap_bail "$way"
done
for round in 1 2; do
	zrs set drain=1 >/dev/null
	now_are tcp "round $round, drained"
	check "round $round: rmmod" zrs_unload
	check "round $round: the module comes back" zrs_load
	now_are zrs "round $round, loaded"
done
no_errors "drained, gone and back" "${ways[@]}"
gone=0
for _ in 1 2 3 4; do
	zrs_unload && gone=$((gone + 1)) && zrs_load
	nap 0.5
done
check "the module goes between two sockets" [ "$gone" -gt 0 ]
now_are zrs "gone without being drained"
no_errors "gone without being drained" preload static
if [ -n "${PID[cgroup]:-}" ]; then
	# Between the BPF program's look and the kernel's, the protocol may go. The next look finds that.
	failed=$(grep -c '^error' "$TMP/cgroup")
	check "cgroup: errors at one moment each time: gone without being drained" [ "$failed" -le "$gone" ]
	check_eq "cgroup: no other error" "" "$(grep '^error' "$TMP/cgroup" | grep -v 'ENOMEM\|EPROTONOSUPPORT')"
fi
for way in "${ways[@]}"; do
	stop "$way" TERM
	check "$way: it has made sockets to the end" has "$TMP/$way" "made "
done
ktap_done
