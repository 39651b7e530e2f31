#!/bin/bash
# Landlock and seccomp with ZRS sockets, compared with TCP sockets.
# rows: B16 B14
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
check_lines /run/netns-exec zrsB python3 "$(dirname "$0")/restricted.py"
zrs set tcp_no_new_privs=1 || ktap_bail "zrs set"
at_end "zrs set tcp_no_new_privs=0"
check_lines /run/netns-exec zrsB python3 "$(dirname "$0")/restricted.py" allowed
ktap_done
