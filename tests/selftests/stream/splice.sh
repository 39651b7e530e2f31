#!/bin/bash
# sendfile() and splice(): pages of files and pipes are sent where they lie, and go when they are
# sent.
# rows: B1 Z4
# machines: any
# timeout: 90
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
start server B "listening on" zrs-selftest splice --server "$ADDR_B:7000" || ktap_bail "server"
check_lines A zrs-selftest splice --client "$ADDR_B:7000"
check_ended "the server got every byte" server
check "no page is held after that" unpinned
ktap_done
