#!/bin/bash
# Datagrams beside a stream with unread small messages, whose blocks use up a part of the link's credit: datagrams of
# all sizes go on, with the default of link_credit and with smaller values.
# hosts: none
# rows: Z7 B11 C3
# debug: full
# params: dgram_stall_ms=5000
# timeout: 180
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../../lib/hostile.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
hostile_up || ktap_bail "hosts on a bridge"
for credit in 64 57 48 33 32; do
	check "unloads" zrs_unload
	check "loads with link_credit=$credit" zrs_load link_credit=$credit dgram_stall_ms=5000
	ktap_say "link_credit=$credit"
	check_lines python3 "$(dirname "$0")/drops.py" unread
done
ktap_done
