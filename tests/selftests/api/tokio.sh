#!/bin/bash
# The tokio example: a server and clients that wait for the ring and for room by epoll,
# edge-triggered.
# rows: B3 B13 E1
# machines: any
# debug: full
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ECHO=/zrs/build/userspace/release/examples/tokio_echo
mib=$(less 8)

ktap_start
start server B "listening on" "$ECHO" server "$ADDR_B:7000" || ktap_bail "the server"
check "$mib MiB come back as they were" A "$ECHO" client "$ADDR_B:7000" "$mib"
ktap_say "$(tail -1 "$TMP/out")"
check "the server had them all" says server "$((mib << 20)) bytes, "
ktap_say "$(tail -1 "$TMP/server")"
check "by the ring it had some without a copy" grep -qE ' bytes, [1-9][0-9]* without a copy$' "$TMP/server"

for i in 1 2 3; do start "client$i" A "" "$ECHO" client "$ADDR_B:7000" 1; done
for i in 1 2 3; do check_ended "three at once: client $i" "client$i" 60; done
check "the server goes on" alive server
ktap_done
