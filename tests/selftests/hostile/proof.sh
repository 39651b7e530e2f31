#!/bin/bash
# A peer in userspace that has a key of the module's host, and cheats with the proof: with one of an
# earlier link, of another link, of another key, none, half of one. Each link ends and is counted,
# connections of others do not notice, and the right proof makes a link.
# rows: B16 B11
# hosts: none
# params: connect_timeout_ms=8000 table_sweep_ms=3600000
# timeout: 300
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../../lib/hostile.sh"
. "$(dirname "$0")/../../lib/keys.sh"

ktap_start
hostile_up || ktap_bail "three hosts on a bridge"
needs_keyrings B
options=()
[ "${TIER:-ci}" = full ] || [ "${TIME_SCALE:-1}" = 1 ] || options=(--quick --every 4)
hostile --seed "${SEED:-1}" "${options[@]}" proof/
ktap_done
