#!/bin/bash
# A peer in userspace that has a key of the module's host, and cheats with the proof: with one of an
# earlier link, of another link, of another key, none, half of one. Each link ends and is counted,
# connections of others do not notice, and the right proof makes a link.
# rows: B16 B11
# hosts: none
# params: table_sweep_ms=3600000
# timeout: 300
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../../lib/hostile.sh"
. "$(dirname "$0")/../../lib/keys.sh"

ktap_start
hostile_up || ktap_bail "three hosts on a bridge"
# A connect() may take two links, one after the other.
echo $((8000 * ${TIME_SCALE:-1})) >/sys/module/zrs/parameters/connect_timeout_ms
needs_keyrings B
options=()
[ "${TIER:-ci}" = full ] || [ "${TIME_SCALE:-1}" = 1 ] || options=(--quick --every 4)
hostile --seed "${SEED:-1}" "${options[@]}" proof/
ktap_done
