#!/bin/bash
# A peer of memory links in userspace that has a key of the module's host, and cheats with the proof, as a requester and
# as a node: it asks first, says an earlier proof again or the module's own, one for streams, by another key, none. Its
# link ends and is counted, nothing is served, its other links go on, and the right proof makes a link.
# rows: B16 M4 M5
# dma: coherent
# hosts: none
# params: connect_timeout_ms=5000
# timeout: 240
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../../lib/hostile.sh"
. "$(dirname "$0")/../../lib/keys.sh"

ktap_start
hostile_up || ktap_bail "three hosts on a bridge"
needs_keyrings B
options=()
[ "${TIER:-ci}" = full ] || [ "${TIME_SCALE:-1}" = 1 ] || options=(--quick --every 4)
hostile --seed "${SEED:-1}" "${options[@]}" "${CASES:-memory-key/}"
ktap_done
