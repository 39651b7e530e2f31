#!/bin/bash
# Each option of SOL_SOCKET, SOL_IP, SOL_IPV6, SOL_UDP and of other levels, with values and lengths of all
# kinds, compared with UDP's in the same host; without and with a UDP socket inside. What ZRS cannot
# honour must be refused.
# rows: Z7 Z1 B6
# debug: full
# timeout: 180
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
check_lines python3 "$(dirname "$0")/options.py"
check_lines python3 "$(dirname "$0")/options.py" --udp
ktap_done
