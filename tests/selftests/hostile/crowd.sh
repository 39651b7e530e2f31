#!/bin/bash
# Requests for links from many addresses of one network: those that nobody goes on with leave room for a link from
# another network, those that there are no blocks for are refused before a queue pair is made, and they end no
# link that is up. The same for half-made memory links.
# hosts: none
# rows: B9 B11 E5
# debug: full
# params: blocks=192 link_credit=32
# timeout: 240
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/hostile.sh"

ktap_start
hostile_up || ktap_bail "three hosts on a bridge"
# The second network, in which host C has all addresses.
{
	for n in $(seq 40); do echo "addr add 10.77.1.$n/32 dev vc"; done
} | ip -n zrsC -batch - && ip -n zrsB route add 10.77.1.0/24 dev vb || ktap_bail "a second network"
hostile named/crowd
ktap_done
