#!/bin/bash
# Keys that are revoked, expire or are invalidated in the kernel's keyring, and that are replaced or removed while links
# are up and while links are made: a link that is up stays, a new one needs a key that is valid now.
# rows: B16 B19
# params: connect_timeout_ms=8000 fallback_ms=6000 link_idle_ms=600000
# timeout: 240
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/keys.sh"

ktap_start
log_all
at_end "flush_keys A B; A zrs peers flush; B zrs peers flush"
needs_keyrings A
check_lines A python3 "$(dirname "$0")/rotation.py"
check "the log says what to do" sh -c "dmesg | grep -q 'no link with .*: the key for it was .* zrs key add'"
ktap_done
