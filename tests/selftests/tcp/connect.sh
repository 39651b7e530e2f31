#!/bin/bash
# connect() by ZRS where it is, else by TCP: which it is and why, what programs see of either, the
# modes, addresses of the own host; and `zrs drain`.
# rows: B14 B1 B7
# hosts: own
# params: connect_timeout_ms=6000
# debug: full
# timeout: 240
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
here=$(dirname "$0")
param=/sys/module/zrs/parameters

# Here the first link may take its time.
echo 10000 >$param/fallback_ms
# First: no socket of ZRS listens in host B yet. The device of host C makes the module forget it.
check_lines A python3 "$here/connect.py" rejected

# Host C: a veth pair with Soft-RoCE on A's end alone, so that no answer ever comes.
export ADDR_C=10.79.0.2
at_end "rdma link delete rxeC; ip netns del zrsC"
ip netns add zrsC && ip link add vc netns zrsA type veth peer name vd netns zrsC &&
	host_up zrsA vc 10.79.0.1 rxeC && ip -n zrsC addr add "$ADDR_C/24" dev vd &&
	ip -n zrsC link set lo up && ip -n zrsC link set vd up || ktap_bail "host C"
# A second wire to host B, without Soft-RoCE, for the sockets that are bound to it.
at_end "ip -n zrsA link delete vx"
ip link add vx netns zrsA type veth peer name vy netns zrsB &&
	ip -n zrsA addr add 10.82.0.1/24 dev vx && ip -n zrsB addr add 10.82.0.2/24 dev vy &&
	ip -n zrsA link set vx up && ip -n zrsB link set vy up &&
	ip -n zrsA route add "${ADDR_B%.*}.0/24" dev vx metric 900 || ktap_bail "a second wire"
A sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.vx.rp_filter=0
check_lines A python3 "$here/connect.py" elsewhere
check_lines A python3 "$here/connect.py"
# Host C has no RDMA device.
check_eq "no device on the way: TCP, NO_ZRS" "2 5" "$(C python3 "$here/connect.py" whys 10.79.0.1 1)"
check_eq "and ENODEV for those that have ZRS alone" "ENODEV ENODEV" "$(C python3 "$here/connect.py" alone 10.79.0.1 1)"
echo 250 >$param/fallback_ms

# A namespace that ends while a connect is under way.
check "a namespace is deleted during a connect" unshare -n bash -c "
	ip link add d0 type dummy && ip addr add 10.80.0.1/24 dev d0 && ip link set d0 up &&
	python3 $here/connect.py leave 10.80.0.2"

# The same while ZRS is still tried: in host D, with Soft-RoCE and a wire to C. It waits a minute for C; its
# namespace ends before.
echo 60000 >$param/fallback_ms
at_end "rdma link delete rxeD; ip netns del zrsD"
ip netns add zrsD && ip link add ve netns zrsD type veth peer name vg netns zrsC &&
	host_up zrsD ve 10.81.0.1 rxeD && ip -n zrsC addr add 10.81.0.2/24 dev vg &&
	ip -n zrsC link set vg up || ktap_bail "host D"
# The other end of its wire goes with the namespace.
namespace_ends() {
	local _
	for _ in $(seq 1 $((300 * PATIENCE))); do
		ip -n zrsC link show vg >/dev/null 2>&1 || return 0
		nap 0.1
	done
	return 1
}
check "a connect waits for a link" start pending D pending python3 "$here/connect.py" pending 10.81.0.2
check "its namespace is deleted meanwhile" ip netns del zrsD
check "it still waits" kill -0 "${PID[pending]}"
stop pending
check "the namespace ends with it" namespace_ends

# Here, too, the first link may take its time.
start hold A connected python3 "$here/connect.py" hold || ktap_bail "hold"
echo 250 >$param/fallback_ms

# Under zrs run: programs that know nothing of it.
start web B "" python3 -m http.server 7300
for _ in $(seq 1 $((200 * PATIENCE))); do
	A curl -s --max-time 5 "http://$ADDR_B:7300/" >"$TMP/got" && break
	nap 0.1
done
fetched() { A zrs run "$@" curl -s --max-time $((20 * PATIENCE)) "http://$ADDR_B:7300/" | head -1; }
check_eq "zrs run: a server of TCP" "<!DOCTYPE HTML>" "$(fetched --)"
check_eq "--tcp=never: ZRS alone" "" "$(fetched --tcp=never --)"
check_eq "--tcp=only" "<!DOCTYPE HTML>" "$(fetched --tcp=only --)"

# New connections by TCP, the old ones to their end, then rmmod.
start late A made python3 "$here/connect.py" why "$ADDR_B" 7300 "$TMP/go" || ktap_bail "a socket that is not connected yet"
check "zrs drain" zrs drain
check_eq "then programs get TCP" "<!DOCTYPE HTML>" "$(fetched --)"
: >"$TMP/go"
check "a socket of before connects by TCP, DRAIN" says late "2 3"
check_ended "it ends" late
check "the old connection goes on" kill -0 "${PID[hold]}"
stop hold
check "zrs drain --wait: its end is awaited" zrs drain --wait $((20 * PATIENCE))
check "and the module can be unloaded" zrs_unload
ktap_done
