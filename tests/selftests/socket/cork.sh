#!/bin/bash
# MSG_MORE and TCP_CORK, over TCP and over ZRS: a corked message joins the next one, leaves in time
# and in order, and with the end of the stream; also on a link that is short of room.
# debug: full
# rows: Z1 E4
# params: links_per_peer=1 link_credit=32 copy_tail_kib=0
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
A zrs-selftest --protocol 6 cork --local "$ADDR_A" >"$TMP/tcp" 2>&1 || show tcp
check "over TCP: the test is right" grep -q '^ok' "$TMP/tcp"
check "and all of it passes" [ "$(grep -c '^not ok' "$TMP/tcp")" = 0 ]
check_lines A zrs-selftest cork --local "$ADDR_A"
check_lines A zrs-selftest cork --local "$ADDR_A" --crowd
ktap_done
