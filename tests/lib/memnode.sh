# shellcheck shell=bash
# For the selftests of memory nodes: host A serves nothing, B serves node 1:1, C serves node 1:2; all
# have the same directory. Sourced after ktap.sh and selftests/lib.sh.

# nodes_up [SIZE]: the three hosts and the two nodes.
nodes_up() {
	local h
	modprobe bridge
	hosts_bridged || return 1
	for h in A B C; do
		$h zrs mem nodes self 1 && $h zrs mem nodes add 1:1 "$ADDR_B" && $h zrs mem nodes add 1:2 "$ADDR_C" ||
			return 1
	done
	start nodeB B "serving node 1:1" zrs mem serve --node 1:1 --size "${1:-32M}" --open &&
		start nodeC C "serving node 1:2" zrs mem serve --node 1:2 --size "${1:-32M}" --open
}

# sum FILE: the SHA-256 of a file.
sum() { sha256sum <"$1" | cut -d' ' -f1; }

# passed: bytes that host A has sent and received by its interface.
passed() { ip -n zrsA -s -j link show dev va | jq '.[0].stats64 | .tx.bytes + .rx.bytes'; }

# may_pass BYTES: how many bytes may pass the requester of copies of so many: 64 KiB, and 256 for each MiB that
# has begun. For a GiB it is 320 KiB.
may_pass() { echo $(((64 << 10) + 256 * (($1 + (1 << 20) - 1) >> 20))); }

# unpinned_here: the module holds no page of a program.
unpinned_here() {
	local _
	for _ in $(seq 1 $((50 * PATIENCE))); do
		[ "$(counter pages_pinned)" != 0 ] || return 0
		nap 0.1
	done
	return 1
}

# unless_lost CMD...: runs CMD, and again if the link was lost: a host ends its links a second after its last daemon has
# ended, which may be when a new one begins.
unless_lost() {
	local said rc _
	for _ in 1 2 3; do
		rc=0
		said=$("$@" 2>&1) || rc=$?
		[ "$rc" != 0 ] && [[ $said == *"was lost"* ]] || break
		nap 0.5
	done
	echo "$said"
	return "$rc"
}

# no_regions: waits until no node has a region; the kernel forgets inodes with a delay.
no_regions() {
	local _
	for _ in $(seq 1 $((50 * PATIENCE))); do
		[ -z "$(B zrs mem ls)$(C zrs mem ls)" ] && return 0
		nap 0.2
	done
	return 1
}
