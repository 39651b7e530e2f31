# shellcheck shell=bash
# Keys of hosts, for `zrs key`. Sourced after ktap.sh.

# secret: a new one.
secret() { head -c 32 /dev/urandom; }

# flush_keys HOST...: removes all keys of these hosts.
flush_keys() {
	local host net name _
	for host in "$@"; do
		"$host" zrs key list | while read -r net name _; do "$host" zrs key remove "$net" "$name"; done
	done
}

# needs_keyrings HOST: in a kernel without keyrings the test ends here, and counts as skipped.
needs_keyrings() {
	if secret | "$1" zrs key add 192.0.2.0/24 probe --file - 2>"$TMP/no"; then
		"$1" zrs key remove 192.0.2.0/24 probe
	elif grep -q "no keyrings" "$TMP/no"; then
		ktap_skip "all" "a kernel without keyrings (CONFIG_KEYS)"
		ktap_done
	fi
}
