#!/bin/bash
# A device that cannot do what ZRS needs of it, two elements of a send where three are needed: one log line and "zrs pool"
# say which limit, what it has and what is needed; connect() over it is ENODEV, and the other host's device is used.
# rows: B17 Z2
# hosts: own
# device: strict
# timeout: 60
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

SGE=/sys/module/rdma_rxe/parameters/send_sge
lines() { dmesg | grep -c 'rxeA: cannot be used: max_send_sge is 2, 3 needed'; }

ktap_start
check "rdma link delete" rdma link delete rxeA
echo 2 >$SGE
at_end "echo 0 >$SGE"
check "a device with two elements of a send" A rdma link add rxeA type rxe netdev va
cat >"$TMP/connect.py" <<'PY'
import errno, socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 253)
try:
    s.connect((sys.argv[1], 7000))
except OSError as e:
    print(errno.errorcode[e.errno])
PY
for _ in 1 2; do
	check_eq "connect() over it" ENODEV "$(A python3 "$TMP/connect.py" "$ADDR_B")"
done
check_eq "the log says why, once" 1 "$(lines)"
check "zrs pool says it as well" sh -c "ip netns exec zrsA zrs pool | grep -q 'rxeA cannot be used: max_send_sge is 2, 3 needed'"
check_eq "and in JSON" '{"limit":"max_send_sge","has":2,"needs":3}' \
	"$(A zrs pool --json | jq -c '.unfit[] | select(.device == "rxeA") | {limit, has, needs}')"
echo 0 >$SGE
check "rdma link delete, again" rdma link delete rxeA
check "a device with more" A rdma link add rxeA type rxe netdev va
check_pair "bulk data by it" xfer --sizes 1,5000,300000 --both
ktap_done
