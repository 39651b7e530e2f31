# shellcheck shell=bash
# For the tests of two machines with software iWARP (tests/two-vm/lib.sh with PROVIDER=siw): what the module
# says of the carrier.

# number HOST NAME: a counter of its module.
number() { on "$1" zrs stats --json | tr ',{}' '\n' | sed -n "s/^\"$2\"://p"; }
moved() { echo $(($(number A tx_bytes) + $(number A rx_bytes))); }

# carried_by_siw BYTES: since carrier_begin ZRS has moved that many bytes in A, at least; there are no devices
# but siw's, and no connection of a program was one of TCP.
carrier_begin() { CARRIED=$(moved); }
carried_by_siw() {
	local now others host tcp
	now=$(moved)
	echo "$CARRIED bytes before, $now now"
	[ $((now - CARRIED)) -ge "$1" ] || return
	for host in A B; do
		others=$(on "$host" rdma link | grep -cv '^link siw')
		tcp=$(on "$host" zrs stats --json | tr ',{}' '\n' | grep -E '^"tcp_[a-z_]+":[1-9]')
		echo "$host: $others other devices; ${tcp:-no connection by TCP}"
		[ "$others" = 0 ] && [ -z "$tcp" ] || return
	done
}
