#!/bin/bash
# /dev/zrs: its answers, and the errno of each refusal.
# rows: Z1 B8
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
check_lines A zrs-selftest ioctl
check_eq "everybody may open /dev/zrs" 666 "$(stat -c %a /dev/zrs)"
check "an ordinary user may ask" setpriv --reuid 65534 --regid 65534 --clear-groups zrs stats --json
ktap_done
