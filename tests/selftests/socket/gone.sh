#!/bin/bash
# After the peer is gone: sends, reads, names, shutdown() and poll(), in several orders, by ZRS and on sockets
# that TCP carries, as over TCP; and a server that is started again binds at once.
# rows: B1 E1 E4
# timeout: 120
# debug: full
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
check_lines B python3 "$(dirname "$0")/gone.py"
ktap_done
