#!/bin/bash
# The route of tcp-plain: TCP sends packets of at most 4 KiB there, and makes and checks their
# checksums in software.
# hosts: own
# rows: B13
# debug: no
# timeout: 60
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
MIB=32
OFFLOADS='^(tcp-segmentation|generic-segmentation|generic-receive)-offload: on|^[rt]x-checksumming: on'
at_end "ip -n zrsA link del pa"
check "another pair of interfaces" hosts_plain
no_offloads() { ! "$1" ethtool -k "$2" | grep -E "$OFFLOADS"; }
check "host A has no offloads there" no_offloads A pa
check "host B has no offloads there" no_offloads B pb
# got NETDEV COUNTER: host B's counter of received data.
got() { ip netns exec zrsB cat "/sys/class/net/$1/statistics/$2"; } # which has a /sys of the namespace
start server B "listening on" zrs bench --server 0.0.0.0:7400 || ktap_bail "the server"
common=$(got vb rx_bytes)
check "$MIB messages of 1 MiB" A zrs bench --client "$ADDR_B" --plain "$PLAIN_B" --only throughput --carriers tcp-plain \
	--rounds 1 --sizes 1M --messages "$MIB" --samples "$TMP/samples"
bytes=$(got pb rx_bytes) packets=$(got pb rx_packets) common=$(($(got vb rx_bytes) - common))
ktap_say "$packets packets, $bytes bytes; $common bytes by the common pair"
check "they went this way" [ "$bytes" -ge $((MIB << 20)) -a "$common" -lt $((1 << 20)) ]
# The MTU and an Ethernet header.
check "no packet is larger than Soft-RoCE's" [ "$bytes" -le $((packets * (4096 + 14))) ]
ktap_done
