#!/bin/bash
# poll() says OUT, and then control messages of the link, and bulk data of other sockets, use what they may: the next
# non-blocking send still takes bytes. With few receives at the peer, and with few slots at the sender. The first send
# after accept() takes bytes.
# rows: E4 Z5
# hosts: none
# module: none
# debug: full
# timeout: 300
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/hostile.sh"

# room CASE PARAM=VALUE...
room() {
	local what=$1
	shift
	zrs_load connect_timeout_ms=5000 ack_timeout_ms=2000 retry_count=6 links_per_peer=1 autocorking=0 "$@" ||
		ktap_bail "the module"
	ADDR=$ADDR_B check_lines python3 "$(dirname "$0")/room.py" "$what"
	check "the module is unloaded" zrs_unload
}

ktap_start
hostile_up || ktap_bail "three hosts on a bridge"
mount -t debugfs debugfs /sys/kernel/debug 2>/dev/null
room credit link_credit=64
room slots table_sweep_ms=3600000 pool_mib=32 blocks=1024 link_credit=256
ktap_done
