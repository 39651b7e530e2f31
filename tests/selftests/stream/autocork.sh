#!/bin/bash
# Automatic corking: small messages in a row leave together, counted as packets of the device and as work requests;
# messages that answer the peer leave at once, unsignaled; a completion sends the corked bytes, and so do the end of
# the stream and the program's exit. With autocorking=0 each call is a message.
# rows: C1 Z5 Z1
# debug: full
# timeout: 300
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
at_end "echo 1 >/sys/module/zrs/parameters/autocorking"
check_lines A python3 "$(dirname "$0")/autocork.py"
check "nothing is left of them" zrs_idle
ktap_done
