#!/bin/bash
# Automatic corking: small messages in a row leave together, as the packets of the device and the module's work
# requests show; those that answer the peer leave at once, unsignaled; what is held is sent by a completion, with
# the end of the stream, and when the program exits. Without it (autocorking=0) each call is a message.
# rows: C1 Z5 Z1
# debug: full
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
at_end "echo 1 >/sys/module/zrs/parameters/autocorking"
check_lines A python3 "$(dirname "$0")/autocork.py"
check "nothing is left of them" zrs_idle
ktap_done
