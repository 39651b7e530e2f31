#!/bin/bash
# Parameters: refused with EINVAL when they make no sense, visible in sysfs, used; parameters that size nothing
# at load can be written while the module is loaded.
# rows: B9 B13 C2 C5
# debug: full
# module: none
# hosts: none
# timeout: 300
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
# insmod's "Invalid parameters" is EINVAL.
for bad in pool_mib=4194305 window_kib=63 window_kib=65 window_kib=1048577 blocks=31 blocks=32769 link_credit=31 \
	link_credit=513 "blocks=64 link_credit=65" connect_timeout_ms=0 connect_timeout_ms=600001 ack_timeout_ms=0 \
	ack_timeout_ms=60001 autocorking=2 copy_tail_kib=257 busy_poll_us=100001 retry_count=0 retry_count=7 service_port=0 service_port=512 max_channels=0 max_channels=16777217 \
	window_idle_ms=3600001 ring_percent=101 user_percent=0 user_percent=101 net_percent=0 net_percent=101 mem_user_percent=0 mem_user_percent=101 pool_mib=-1 pool_mib=x pool_mib=4294967296 \
	table_hot=65537 table_near=1048577 table_ways=0 table_ways=65 table_sweep_ms=9 table_sweep_ms=3600001 \
	links_per_peer=0 links_per_peer=65 link_channels=0 link_channels=16777217 link_waits=0 link_idle_ms=0 \
	dgram_links=0 dgram_links=65537 dgram_lend_percent=101 dgram_lend_percent=-1 link_idle_ms=86400001 heartbeat_ms=3600001 dead_ms=0 dead_ms=86400001 bulk_us=1000001 \
	residency_us=0 residency_us=1000001 resident_percent=0 resident_percent=101 cache_kib=16777217 escape=sometimes escape= \
	escape=1 escape_mib=16777217 small_percent=0 small_percent=76 own_receives=2 tcp=sometimes tcp=1 tcp_no_new_privs=2 fallback_ms=0 fallback_ms=60001 asking_per_user=0 drain=2 enabled=1; do
	# shellcheck disable=SC2086 # a list
	check_fails "insmod with $bad: EINVAL" "Invalid parameters|Numerical result out of range" zrs_load $bad
	! zrs_loaded || { ktap_fail "not loaded with $bad"; zrs_unload; }
done
at_end zrs_unload
# Without the parameters that the tests set everywhere.
plain() { ZRS_PARAMS='' zrs_load; }
check "insmod with good values" zrs_load pool_mib=4 window_kib=256 blocks=128 link_credit=48 own_receives=1 \
	dgram_stall_ms=30 dgram_lend_percent=7 dgram_links=9 pin_threshold=0 connect_timeout_ms=1500 autocorking=0 copy_tail_kib=32 busy_poll_us=20 ack_timeout_ms=100 retry_count=3 service_port=333 max_channels=100 \
	window_idle_ms=0 ring_percent=50 table_hot=3 table_near=6 table_ways=4 table_sweep_ms=10 links_per_peer=1 \
	link_channels=5 link_waits=7 link_idle_ms=2000 heartbeat_ms=0 dead_ms=40000 bulk_us=0 user_percent=40 net_percent=60 mem_user_percent=15 \
	residency_us=300 resident_percent=60 cache_kib=2048 escape=never escape_mib=7 small_percent=30 tcp=auto tcp_no_new_privs=1 fallback_ms=200 asking_per_user=5 drain=1 enabled=off
params() { (cd /sys/module/zrs/parameters && grep -H . -- * | tr '\n' ' '); }
check_eq "sysfs shows them" "ack_timeout_ms:100 asking_per_user:5 autocorking:0 blocks:128 bulk_us:0 busy_poll_us:20 cache_kib:2048\
 connect_timeout_ms:1500 copy_tail_kib:32 dead_ms:40000 dgram_lend_percent:7 dgram_links:9 dgram_stall_ms:30 drain:1 enabled:off escape:never escape_mib:7 fallback_ms:200 heartbeat_ms:0 link_channels:5 link_credit:48 link_idle_ms:2000 link_waits:7 links_per_peer:1 max_channels:100 mem_user_percent:15\
 net_percent:60 own_receives:1 pin_threshold:0 pool_mib:4 residency_us:300 resident_percent:60 retry_count:3 ring_percent:50 service_port:333\
 small_percent:30 table_hot:3 table_near:6 table_sweep_ms:10\
 table_ways:4 tcp:auto tcp_no_new_privs:1 user_percent:40 window_idle_ms:0 window_kib:256 " "$(params)"
# Sets are whole.
check_eq "the second tier of the link table" '"near_places":8,' "$(zrs links --json | grep -o '"near_places":[0-9]*,')"

# write NAME VALUE, to sysfs.
write() { printf '%s\n' "$2" >"/sys/module/zrs/parameters/$1"; }
value() { cat "/sys/module/zrs/parameters/$1"; }
check_eq "those that can be written" \
	"asking_per_user autocorking busy_poll_us connect_timeout_ms copy_tail_kib dead_ms dgram_lend_percent drain enabled escape escape_mib fallback_ms heartbeat_ms links_per_peer mem_user_percent net_percent pool_mib residency_us resident_percent tcp tcp_no_new_privs user_percent " \
	"$(cd /sys/module/zrs/parameters && find . -perm 644 -printf '%f\n' | sort | tr '\n' ' ')"
for name in $(cd /sys/module/zrs/parameters && find . -type f -perm 444 -printf '%f\n' | sort); do
	before=$(value "$name")
	check_fails "$name keeps its value" "Permission denied" write "$name" 1
	check_eq "$name: the same value" "$before" "$(value "$name")"
done
for good in pool_mib=0 pool_mib=4194304 pool_mib=16 pool_mib=0x10 residency_us=1 residency_us=1000000 resident_percent=1 \
	resident_percent=100 escape=always escape=under-pressure escape=never escape_mib=16777216 escape_mib=0 tcp=required tcp=never tcp_no_new_privs=1 drain=1 drain=0 enabled=off enabled=on fallback_ms=60000 asking_per_user=65536 \
	connect_timeout_ms=600000 autocorking=0 autocorking=1 copy_tail_kib=256 copy_tail_kib=0 busy_poll_us=100000 heartbeat_ms=0 dead_ms=1 dgram_lend_percent=0 dgram_lend_percent=100 links_per_peer=64 user_percent=1 net_percent=100 mem_user_percent=100; do
	check "$good is written" write "${good%%=*}" "${good#*=}"
	want=${good#*=}
	[ "$want" != 0x10 ] || want=16
	check_eq "and read" "$want" "$(value "${good%%=*}")"
done
for bad in pool_mib=4194305 pool_mib=-1 pool_mib=x pool_mib= pool_mib=4294967296 residency_us=0 residency_us=1000001 \
	resident_percent=0 resident_percent=101 escape=sometimes escape= escape=1 escape=neverr escape=neve "escape= never" \
	escape_mib=16777217 tcp=always tcp_no_new_privs=2 fallback_ms=0 asking_per_user=65537 drain=2 enabled=yes \
	connect_timeout_ms=0 autocorking=2 copy_tail_kib=257 busy_poll_us=100001 heartbeat_ms=3600001 dead_ms=0 dgram_lend_percent=101 links_per_peer=65 user_percent=0 net_percent=101 mem_user_percent=0; do
	before=$(value "${bad%%=*}")
	check_fails "writing $bad: EINVAL" "Invalid argument" write "${bad%%=*}" "${bad#*=}"
	check_eq "and the value stays" "$before" "$(value "${bad%%=*}")"
done
# A write's effects and the module's end exclude each other.
(while write pool_mib 16 && write residency_us 100; do :; done) 2>/dev/null &
check "unloads, also while somebody writes" zrs_unload
wait
check "insmod without any" plain
check_eq "the defaults" "ack_timeout_ms:500 asking_per_user:64 autocorking:1 blocks:512 bulk_us:500 busy_poll_us:0 cache_kib:0\
 connect_timeout_ms:1000 copy_tail_kib:64 dead_ms:30000 dgram_lend_percent:25 dgram_links:128 dgram_stall_ms:20 drain:0 enabled:on escape:under-pressure escape_mib:0 fallback_ms:250 heartbeat_ms:10000 link_channels:8192 link_credit:64 link_idle_ms:60000 link_waits:10000 links_per_peer:2\
 max_channels:16384 mem_user_percent:25 net_percent:80 own_receives:0 pin_threshold:16384 pool_mib:0 residency_us:200 resident_percent:100 retry_count:6\
 ring_percent:80 service_port:340 small_percent:25 table_hot:0 table_near:1024\
 table_sweep_ms:5000 table_ways:4 tcp:never tcp_no_new_privs:0 user_percent:80 window_idle_ms:100 window_kib:0 " "$(params)"
ktap_done
