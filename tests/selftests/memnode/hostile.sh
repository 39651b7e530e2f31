#!/bin/bash
# A peer of memory links in userspace that breaks their rules, as a requester and as a node: forged remote keys, a
# WRITE that stops in its middle, lies, a number used twice, 65 asks, headers with changed bytes, silence. Its link
# goes; a bystander's memory operations and sockets do not notice; after a free no byte lands.
# rows: M4 M5 B11
# dma: coherent
# hosts: none
# params: connect_timeout_ms=5000
# debug: full
# timeout: 360
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../../lib/hostile.sh"

ktap_start
hostile_up || ktap_bail "three hosts on a bridge"
: "${SEED:=1}"
hostile --seed "$SEED" --seconds 3 "${CASES:-memory/}"
ktap_done
