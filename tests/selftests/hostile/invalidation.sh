#!/bin/bash
# On a device where an invalidation gives a window back: a peer that takes hardly any message holds the invalidation up. Nobody
# gets the window's pages meanwhile, others' windows are asked back, and after 10 seconds the peer's link ends.
# hosts: none
# rows: Z3 B9 B17
# device: strict
# debug: full
# params: net_percent=100 window_kib=256 table_sweep_ms=3600000 heartbeat_ms=0
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/hostile.sh"

ktap_start
log_all
hostile_up || ktap_bail "three hosts on a bridge"
hostile --bystander "" named/stuck-invalidation
check "the log says why the link ended" sh -c "dmesg | grep -q 'lost: its peer keeps a remote key: it takes no messages'"
check "no window is leaked" zrs_idle
ktap_done
