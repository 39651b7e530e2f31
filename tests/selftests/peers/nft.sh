#!/bin/bash
# The rules of nftables that are installed as an example: hosts of the listed networks have links and others have none,
# and no program sends to the port of RoCE.
# rows: B16 B11
# hosts: own
# params: connect_timeout_ms=4000 fallback_ms=3000
# debug: full
# timeout: 90
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

# dropped HOST CHAIN: packets that the rules have dropped there.
dropped() { "$1" nft list chain inet zrs_peers "$2" | sed -n 's/.*counter packets \([0-9]*\) .*/\1/p'; }

ktap_start
# A network that is not listed: its addresses are on the same wire.
at_end "ip -n zrsA addr del 10.76.0.1/24 dev va; ip -n zrsB addr del 10.76.0.2/24 dev vb"
ip -n zrsA addr add 10.76.0.1/24 dev va && ip -n zrsB addr add 10.76.0.2/24 dev vb || ktap_bail "another network"
cat >"$TMP/connect" <<'PY'
import errno
import socket
import sys
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 253)
err = s.connect_ex((sys.argv[1], 7300))
print(errno.errorcode.get(err, "connected"))
PY
at_end "A nft flush ruleset; B nft flush ruleset"
sed 's,192\.0\.2\.0/24,10.77.0.0/24,; s,2001:db8::/32,fd77::/64,' /zrs/packaging/files/zrs-peers.nft >"$TMP/rules"
check "the rules are loaded" eval 'A nft -f "$TMP/rules" && B nft -f "$TMP/rules"'
check_pair "links by IPv4" pingpong --conns 2 --rounds 20
check_pair "bulk data both ways" xfer --sizes 1,5000,300000 --both
start server B "opened 0" zrs-selftest fill --listen 0.0.0.0:7300 || ktap_bail "a server"
check_eq "a listed host" connected "$(A python3 "$TMP/connect" "$ADDR_B")"
check_eq "nothing of these was dropped" "0 0 0 0" "$(dropped A in) $(dropped A out) $(dropped B in) $(dropped B out)"
check_eq "another one gets no link" ETIMEDOUT "$(A python3 "$TMP/connect" 10.76.0.2)"
check "its packets were dropped" [ "$(dropped B in)" -gt 0 ]
cat >"$TMP/send" <<'PY'
import socket
import sys
try:
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", (sys.argv[1], 4791))
    print("sent")
except PermissionError:
    print("EPERM")
PY
check_eq "no program sends to the port" "EPERM 1" "$(A python3 "$TMP/send" "$ADDR_B") $(dropped A out)"
check_eq "the module does" connected "$(A python3 "$TMP/connect" "$ADDR_B")"
A nft flush ruleset
B nft flush ruleset
# A request for a link that is lost is repeated by the connection manager after 4.6 s.
echo 20000 >/sys/module/zrs/parameters/connect_timeout_ms
now=$(A python3 "$TMP/connect" 10.76.0.2)
check_eq "without the rules the other network has links" connected "$now"
if [ "$now" != connected ]; then
	A zrs links
	B zrs links
fi
ktap_done
