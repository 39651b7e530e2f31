#!/bin/bash
# Vectors and several messages at once: readv, writev, recvmsg, sendmmsg, recvmmsg, control
# messages; io_uring. The same over TCP.
# debug: full
# rows: B1
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
check_lines A zrs-selftest scatter --local "$ADDR_A" --seed "${SEED:-1}"
ktap_say "over TCP:"
check_lines A zrs-selftest --protocol 6 scatter --local "$ADDR_A" --seed "${SEED:-1}"
ktap_done
