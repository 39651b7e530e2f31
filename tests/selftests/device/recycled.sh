#!/bin/bash
# On a device that is done with a peer's access when an invalidation has completed (all but Soft-RoCE),
# windows have the memory regions that were made when the device came, and those of windows that came back: kprobes count
# the regions that the RDMA core allocates, deregisters and maps. There a registration does not wait for what was sent before. (memnode/recycled: until its keys are used up.)
# rows: B17 Z8
# hosts: own
# device: strict
# timeout: 180
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

CONNS=100
cat >"$TMP/receiver.py" <<'PY'
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 253)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("10.77.0.2", 7000))
s.listen(8)
print("listening", flush=True)
want, right = bytes(range(256)) * 2048, 0
for n in range(int(sys.argv[1])):
    c, _ = s.accept()
    got = bytearray()
    while part := c.recv(1 << 20):
        got += part
    right += got[1:] == want and got[0] == n & 255
    c.send(b"!")
    c.close()
print("right", right, flush=True)
PY
cat >"$TMP/sender.py" <<'PY'
import socket, sys
data = bytes(range(256)) * 2048
for n in range(int(sys.argv[1])):
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 253)
    s.connect(("10.77.0.2", 7000))
    s.sendall(bytes([n & 255]) + data)
    s.shutdown(socket.SHUT_WR)
    s.recv(1)
    s.close()
PY

ktap_start
define_probes "regions of windows" 'allocated ib_core:ib_alloc_mr' 'ended ib_core:ib_dereg_mr_user' \
	'mapped ib_core:ib_map_mr_sg'
start receiver B listening python3 "$TMP/receiver.py" $CONNS || ktap_bail "the receiver"
before=$(counter signaled) posted=$(counter work_requests)
echo 1 >$TRACING/events/zrstest/enable
check "$CONNS connections with bulk data, one after the other" A python3 "$TMP/sender.py" $CONNS
check "whose bytes are right" says receiver "right $CONNS"
echo 0 >$TRACING/events/zrstest/enable
signaled=$(($(counter signaled) - before))
ktap_say "signaled $signaled of $(($(counter work_requests) - posted)) work requests"
times() { grep -c "$1:" $TRACING/trace; }
made=$(times allocated) ended=$(times ended) mapped=$(times mapped)
check "windows were registered ($mapped)" test "$mapped" -ge $((CONNS / 2))
# Before a registration Soft-RoCE's send queue is drained, by a request that is signaled: one more a connection.
check "and no send queue was drained for it (signaled $signaled)" test "$signaled" -le $((CONNS * 11 / 2))
# While the last window's key is made invalid, the next connection may get another one: of those made with the pool.
check_eq "no region was allocated for them, and none deregistered" "0 0" "$made $ended"
check "no window is leaked" zrs_idle
ktap_done
