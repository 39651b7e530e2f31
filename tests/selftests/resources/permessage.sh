#!/bin/bash
# RDMA resources are made with links and windows, never per message.
# rows: Z8 B4 C6
# debug: full
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
check_pair "messages make none" pingpong --conns 2 --rounds "$(less 200)" --most 256k --pause-us 0 --steady
check_pair "nor by the ring" pingpong --conns 2 --rounds "$(less 200)" --most 256k --pause-us 0 --steady --ring
# A second connection to a known host uses the link that is there.
start serve B "listening on" zrs-selftest serve "$ADDR_B:7100" || ktap_bail "serve"
A zrs ping "$ADDR_B:7101" -c 1 >/dev/null 2>&1 # refused, and the link is there after it
start first A holding zrs-selftest hold --what conn --addr "$ADDR_B:7100"
made=$(counter resources_made)
links=$(counter links)
start second A holding zrs-selftest hold --what conn --addr "$ADDR_B:7100"
check_eq "a second connection makes none" "$made" "$(counter resources_made)"
check_eq "and no link" "$links" "$(counter links)"
ktap_done
