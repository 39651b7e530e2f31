#!/bin/bash
# The receiver's RDMA device goes while datagrams wait: they stay, the sender hears of it, and a new
# device serves both sockets; with UDP inside, that carries datagrams in between. The module stays while there are datagram sockets, and goes after them.
# hosts: own
# rows: Z7 B9 Z6
# params: dgram_stall_ms=5000
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
check_lines python3 "$(dirname "$0")/drops.py" device "rdma link delete rxeB" \
	"ip netns exec zrsB rdma link add rxeB type rxe netdev vb"
check_lines python3 "$(dirname "$0")/companion.py" lost
check "the module can go" zrs_unload
ktap_done
