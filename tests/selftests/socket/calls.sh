#!/bin/bash
# The effect of flags, options and ioctls of a connection, over TCP and over ZRS: MSG_TRUNC,
# MSG_PEEK, MSG_WAITALL, MSG_MORE, SO_LINGER, SO_BINDTODEVICE, SO_RCVBUF, TCP_INFO, SIGIO,
# sendmmsg() and recvmmsg().
# debug: full
# rows: Z1 B6
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
at_end "echo 1 >/sys/module/zrs/parameters/autocorking"
A zrs-selftest --protocol 6 calls --local "$ADDR_A" >"$TMP/tcp" 2>&1 || show tcp
check "over TCP: the test is right" grep -q '^ok' "$TMP/tcp"
check "and all of it passes" [ "$(grep -c '^not ok' "$TMP/tcp")" = 0 ]
check_lines A zrs-selftest calls --local "$ADDR_A"
ktap_done
