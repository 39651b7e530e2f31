#!/bin/bash
# zrs net: ZRS is off in a network namespace, or for programs outside a range of groups; the result for each kind of
# socket, and the right to change the setting.
# rows: B16
# params: connect_timeout_ms=6000 fallback_ms=3000
# debug: full
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
at_end "A zrs net on; B zrs net on; A zrs net groups all; B zrs net groups all; zrs set enabled=on"
check_eq "as loaded" "on;groups all;" "$(A zrs net | tr '\n' ';')"
check "the parameter" zrs set enabled=off
check_eq "is for namespaces without a setting" "off" "$(A zrs net show | head -1)"
check_eq "but for the first one" "on" "$(zrs net show | head -1)"
check "on" A zrs net on
check_eq "is the namespace's, and no other's" "on off" "$(A zrs net | head -1) $(B zrs net | head -1)"
check "all are on" zrs set enabled=on
check_fails "an ordinary user" "only root" A setpriv --reuid 1000 --clear-groups zrs net off
if A setpriv --reuid 1000 --clear-groups unshare -Urn true 2>/dev/null; then
	check_fails "the administrator of a container" "only root" \
		A setpriv --reuid 1000 --clear-groups unshare -Urn zrs net off
else
	ktap_skip "a user's own namespace" "not allowed here"
fi
check_fails "groups that are none" "is not the number of a group" A zrs net groups users
check_fails "groups that end before they begin" "before they begin" A zrs net groups 7 6
check_lines A python3 "$(dirname "$0")/net.py"
ktap_done
