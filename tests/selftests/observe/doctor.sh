#!/bin/bash
# `zrs doctor`: all is well; then one thing after the other is broken, and the line of the report that says so.
# rows: B8
# hosts: own
# debug: full
# timeout: 240
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

NOBODY=(setpriv --reuid 65534 --regid 65534 --clear-groups)
# finds TEXT NAME STATUS PATTERN CMD...: the report has such a line with a remedy, and the exit status is that of a failure if
# it is one.
finds() {
	local text=$1 name=$2 status=$3 pattern=$4 rc=0 want=0
	shift 4
	"$@" --json >"$TMP/report" 2>&1 || rc=$?
	[ "$status" != failure ] || want=1
	if [ "$rc" = "$want" ] && jq -e --arg n "$name" --arg s "$status" --arg p "$pattern" \
		'.checks | any(.name == $n and .status == $s and (.text | test($p)) and (.remedy != "" or $s == "ok"))' \
		"$TMP/report" >"$TMP/found"; then
		ktap_pass "$text"
	else
		jq -r '.checks[] | "#   \(.status) \(.name): \(.text)"' "$TMP/report" || sed 's/^/#   /' "$TMP/report"
		ktap_fail "$text (exit status $rc)"
	fi
}
# last TEXT NAME: the report of before ends with that line.
last() { check_eq "$1" "$2" "$(jq -r '.checks[-1].name' "$TMP/report")"; }

ktap_start
# The root has no zrs.ko in its place, and the guest no more memory locked than it likes.
check_eq "all is well" 0 "$(A zrs doctor --json | tee "$TMP/report" | jq .failures)"
jq -r '.checks[] | "# \(.status) \(.name): \(.text)"' "$TMP/report"
check_eq "no warning but that the module is not installed" "module file" \
	"$(jq -r '.checks[] | select(.status == "warning") | .name' "$TMP/report")"
check_eq "the device is used, and has an address" "ok ok" "$(jq -r \
	'[.checks[] | select(.name == "rxeA limits" or .name == "rxeA address") | .status] | join(" ")' "$TMP/report")"
finds "the other host's device" "rxeB interface" ok "another network namespace" A zrs doctor
A zrs doctor >"$TMP/text"
check "the same for people" grep -qE "^[0-9]+ checks, 1 warnings, 0 failures$" "$TMP/text"

# The way to another host.
finds "nobody listens there" link failure "ZRS does not answer" A zrs doctor "$ADDR_B"
last "is the last step" link
start echo B "listening on" zrs ping --listen "$ADDR_B:7000" || ktap_bail "zrs ping --listen"
finds "a host that is reached" link ok "up, after" A zrs doctor "$ADDR_B"
last "is measured in the end" "round trip"
finds "an open port" port ok "takes connections" A zrs doctor "$ADDR_B" --port 7000
finds "a closed port" port failure "refuses connections to port 7001" A zrs doctor "$ADDR_B" -p 7001
start echo6 B "listening on" zrs ping --listen "[$ADDR6_B]:7000" || ktap_bail "zrs ping --listen, IPv6"
finds "a host that is reached by IPv6" port ok "takes connections" A zrs doctor "$ADDR6_B" -p 7000
stop echo6
finds "an address that nobody has" neighbour failure "does not answer ARP" A zrs doctor 10.77.0.9
last "is where it ends" neighbour
finds "no route" route failure "no route" A zrs doctor 192.0.2.1
finds "no such name" address failure "has no address" A zrs doctor nosuch.invalid
ip -n zrsA link add dummy0 type dummy && ip -n zrsA addr add 192.0.2.2/24 dev dummy0 && ip -n zrsA link set dummy0 up
finds "an interface without an RDMA device" "device to there" failure "dummy0" A zrs doctor 192.0.2.1
ip -n zrsA link del dummy0
tc_drop() {
	tc -n zrsB qdisc add dev vb clsact &&
		tc -n zrsB filter add dev vb ingress protocol ip flower ip_proto udp dst_port 4791 action drop
}
stop echo
if zrs_unload && zrs_load && tc_drop 2>"$TMP/tc"; then
	start echo B "listening on" zrs ping --listen "$ADDR_B:7000" || ktap_bail "zrs ping --listen"
	finds "UDP 4791 is dropped there" link failure "does not answer" A zrs doctor "$ADDR_B"
	stop echo
	tc -n zrsB qdisc del dev vb clsact
else
	ktap_skip "UDP 4791 is dropped there" "no filters: $(head -1 "$TMP/tc")"
fi

# The host itself.
finds "no locked memory" "locked memory" warning "is 0 bytes" A prlimit --memlock=0 "${NOBODY[@]}" zrs doctor
mkdir -p /run/modprobe.d
at_end "rm -f /run/modprobe.d/zrs-test.conf"
echo "options zrs pool_mb=64" >/run/modprobe.d/zrs-test.conf
finds "a parameter that is none" modprobe.d warning "no parameter pool_mb" A zrs doctor
echo "options zrs blocks=2048" >/run/modprobe.d/zrs-test.conf
finds "one that is not in effect" modprobe.d warning "blocks=2048 is not in effect" A zrs doctor
rm /run/modprobe.d/zrs-test.conf
at_end "rm -f /usr/lib/modprobe.d/zrs.conf /run/modprobe.d/zrs.conf"
mkdir -p /usr/lib/modprobe.d
cp /zrs/packaging/files/modprobe.conf /usr/lib/modprobe.d/zrs.conf
echo "# nothing" >/run/modprobe.d/zrs.conf
finds "a file that hides the package's" modprobe.d warning "hides the package's" A zrs doctor
rm /usr/lib/modprobe.d/zrs.conf /run/modprobe.d/zrs.conf
check "zrs drain" zrs drain
finds "a module that makes no sockets" socket failure "zrs drain is in effect" A zrs doctor
check "zrs drain --stop" zrs drain --stop
chmod 0600 /dev/zrs
finds "no access to /dev/zrs" module failure "permission denied" A "${NOBODY[@]}" zrs doctor
chmod 0666 /dev/zrs
finds "no library for zrs run" "zrs run" warning "no such file" A env ZRS_PRELOAD_LIB=/no/such zrs doctor
start rping A "" rping -s -a "$ADDR_A" -p 340
for _ in $(seq 1 $((100 * PATIENCE))); do
	! A rdma resource show cm_id | grep rping | grep -q LISTEN || break
	nap 0.2
done
finds "another program on the service port" "service port" failure "rping listens on port 340" A zrs doctor
stop rping
ip -n zrsA link set va mtu 1500
finds "short packets" "rxeA MTU" warning "1024 bytes" A zrs doctor
ip -n zrsA link set va mtu 9000
ip -n zrsA addr flush dev va scope global
finds "no address" "rxeA address" failure "no address" A zrs doctor
ip -n zrsA addr add "$ADDR_A/24" dev va
ip -n zrsA link set va down
finds "a port that is down" "rxeA port" failure "not active" A zrs doctor
ip -n zrsA link set va up

# The module.
check "rmmod" zrs_unload
finds "the module is not loaded" module failure "not loaded" A zrs doctor
finds "what the device offers is seen without it" "rxeA limits" ok "has what ZRS needs" bash -c \
	'/run/netns-exec zrsA zrs doctor "$@" || true' --
check "loads with another port" zrs_load service_port=341
finds "a foreign parameter value" parameters warning "service_port=341" A zrs doctor
check "rmmod" zrs_unload
check "loads with a pool that no machine has" zrs_load pool_mib=4194304
finds "no memory for a pool" socket failure "annot allocate memory" A zrs doctor
check "rmmod" zrs_unload
rdma link delete "$DEV_A"
rdma link delete "$DEV_B"
check "loads" zrs_load
finds "no RDMA device" devices failure "there is no RDMA device" A zrs doctor
ktap_done
