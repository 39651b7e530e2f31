#!/bin/bash
# Keys of a network namespace: two hosts have a link only once both have proved that they have the same
# key; a missing key and another one; the change from a key to the next one.
# rows: B16 B19
# timeout: 90
# params: connect_timeout_ms=8000 fallback_ms=6000 link_idle_ms=600000
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/keys.sh"

ktap_start
log_all
key() { A zrs key "$@"; }
at_end "flush_keys A B; A zrs peers flush; B zrs peers flush"
needs_keyrings A

# The command.
secret | key add 192.0.2.0/24 probe --file - || ktap_bail "a secret of the standard input"
secret >"$TMP/secret"
check_fails "a secret that others may read" "chmod 600" key add 192.0.2.0/24 a --file "$TMP/secret"
chmod 600 "$TMP/secret"
check "a secret of a file" key add 192.0.2.77/24 a --file "$TMP/secret"
check "by name, from the keyring" key add 2001:db8::/32 a
check_eq "list" "192.0.2.0/24 probe;192.0.2.0/24 a;2001:db8::/32 a;" "$(key | tr '\n' ';')"
check_eq "another namespace has none" "" "$(B zrs key)"
check "the same once more" key add 192.0.2.0/24 a --file "$TMP/secret"
check_eq "is one key" 2 "$(key | grep -c '^192.0.2.0/24 ')"
check_fails "a third one" "has 2 keys already" key add 192.0.2.0/24 a3 --file "$TMP/secret"
check_fails "not in a keyring" "no key zrs:nowhere in the keyrings" key add 10.0.0.0/8 nowhere
check_fails "a short secret" "16 at least" sh -c "echo short | /run/netns-exec zrsA zrs key add 10.0.0.0/8 s --file -"
check_fails "a mistake" "is not a name" key add 10.0.0.0/8 a/b
check_fails "an ordinary user" "CAP_NET_ADMIN" A setpriv --reuid 1000 --clear-groups zrs key remove 192.0.2.0/24
check_eq "may list them" 3 "$(A setpriv --reuid 1000 --clear-groups zrs key | wc -l)"
check "remove one" key remove 192.0.2.0/24 probe
check "remove all of a network" key remove 192.0.2.0/24
check_fails "there is none" "has no such key" key remove 192.0.2.0/24
check "remove" key remove 2001:db8::/32
check_eq "nothing is left" "" "$(key)"
mkdir -p /etc/zrs/keys.d
at_end "rm -rf /etc/zrs/keys.d /etc/zrs/keys"
install -m 600 "$TMP/secret" /etc/zrs/keys.d/b
printf '# a comment\n192.0.2.0/24 b\n' >/etc/zrs/keys
check "load" key load
check_eq "the file's keys" "192.0.2.0/24 b" "$(key)"
check "remove it" key remove 192.0.2.0/24

check_lines A python3 "$(dirname "$0")/keys.py"
for text in "a key is missing here" "it has no key for this host" "its key is another one" "its log says why"; do
	check "the log says: $text" sh -c "dmesg | grep -q 'no link with .*: .*$text'"
done
ktap_done
