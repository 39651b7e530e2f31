# shellcheck shell=bash
# For selftests in which users connect to a host that does not answer, while there are two hosts. Sourced after
# tests/selftests/lib.sh.

# The address resolves, and no host takes what is sent there.
SILENT=10.77.0.101:7000
silent_up() { ip -n zrsA neigh add "${SILENT%:*}" lladdr 02:00:00:00:77:01 dev va nud permanent; }

# storm UID N ERRNO: user UID of A begins N connects of at most 200; the next one fails with ERRNO.
storm() {
	start "user$1" A began setpriv --reuid "$1" --clear-groups zrs-selftest storm "$SILENT" --conns 200 &&
		{ grep -x "began $2, then connect: $3" "$TMP/user$1" || { cat "$TMP/user$1"; return 1; }; }
}
