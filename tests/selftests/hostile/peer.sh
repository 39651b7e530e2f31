#!/bin/bash
# A peer in userspace that breaks every rule of the protocol: its link goes or it gets the
# documented answer, the victim's sockets get the documented errno, connections of others do not
# notice, and nothing is left.
# rows: Z3 Z7 B9 B11 L2 C3 E5
# hosts: none
# params: max_channels=384 net_percent=100 window_kib=256 table_sweep_ms=3600000 autocorking=0
# timeout: 300
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../../lib/hostile.sh"

ktap_start
hostile_up || ktap_bail "three hosts on a bridge"
# A connect() may take two links, one after the other.
echo $((5000 * ${TIME_SCALE:-1})) >/sys/module/zrs/parameters/connect_timeout_ms
: "${SEED:=1}"
options=()
# Where everything is slow a part of the cases runs, another one with each seed.
[ "${TIER:-ci}" = full ] || [ "${TIME_SCALE:-1}" = 1 ] || options=(--quick --every 8)
# shellcheck disable=SC2086 # a list
hostile --seed "$SEED" "${options[@]}" ${CASES:-}
ktap_done
