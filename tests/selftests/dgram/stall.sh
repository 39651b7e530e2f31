#!/bin/bash
# A link without room: datagrams for it are dropped, and no sender is held up. The module can go
# afterwards.
# hosts: none
# rows: Z7 E1 B11
# params: ack_timeout_ms=8000 retry_count=6
# timeout: 180
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../../lib/hostile.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
hostile_up || ktap_bail "hosts on a bridge"
# The bridge loses the frames, so that the device in A waits for acknowledgements.
cut="bridge -n zrsL link set dev lb state 0"
mend="bridge -n zrsL link set dev lb state 3"
check_lines python3 "$(dirname "$0")/drops.py" stall "$cut" "$mend"
check_lines python3 "$(dirname "$0")/drops.py" several "$cut" "$mend"
check "the module can go" zrs_unload
ktap_done
