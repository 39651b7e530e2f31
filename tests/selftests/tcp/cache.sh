#!/bin/bash
# How many hosts a user's connects ask for a link at a time; when a host that was found to have no ZRS
# is asked again: after a minute, behind a connection, or when its link comes up after all; how many
# hosts and ports are remembered.
# rows: B14 B7
# hosts: own
# params: connect_timeout_ms=6000
# debug: full
# timeout: 300
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
here=$(dirname "$0")
param=/sys/module/zrs/parameters
# Host C: a veth pair with Soft-RoCE on A's end alone, so that no answer ever comes.
export ADDR_C=10.79.0.2
at_end "rdma link delete rxeC; rdma link delete rxeD; ip netns del zrsC"
ip netns add zrsC && ip link add vc netns zrsA type veth peer name vd netns zrsC &&
	host_up zrsA vc 10.79.0.1 rxeC && ip -n zrsC addr add "$ADDR_C/24" dev vd &&
	ip -n zrsC addr add 10.79.0.3/24 dev vd && ip -n zrsC addr add 10.79.0.4/24 dev vd &&
	ip -n zrsC link set lo up && ip -n zrsC link set vd up || ktap_bail "host C"
known() { zrs stats --json | jq .tcp.known; }
# A host with ZRS. The first link takes longer than this.
before=$(cat $param/fallback_ms)
echo 1 >$param/fallback_ms
check_lines A python3 "$here/cache.py" slow
echo 10000 >$param/fallback_ms
check_lines A python3 "$here/cache.py" many
echo "$before" >$param/fallback_ms
echo 2 >$param/asking_per_user
# A slow machine looks at all of them before they are decided.
decided=$(cat $param/fallback_ms)
echo 20000 >$param/fallback_ms
check_lines A setpriv --reuid 1000 --clear-groups env "PATH=$PATH" python3 "$here/cache.py" asking
echo "$decided" >$param/fallback_ms
echo 64 >$param/asking_per_user
check_lines A python3 "$here/cache.py" known
check_lines A python3 "$here/cache.py" again
echo "$before" >$param/fallback_ms
remember() { check_eq "hosts are remembered" no "$([ "$(known)" = 0 ] || echo no)"; }
remember
# A link could not be made from an address that the device did not have yet.
check "an address comes to a device" ip -n zrsA addr add 10.81.0.1/24 dev va
check_becomes "nothing is remembered" 0 known
check_lines A python3 "$here/cache.py" known
# A device comes to the other end: the host has ZRS now.
remember
check "a device comes" ip netns exec zrsC rdma link add rxeD type rxe netdev vd
check_eq "nothing is remembered" 0 "$(known)"
ktap_done
