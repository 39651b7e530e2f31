#!/bin/bash
# The directory of memory nodes from etcd, by the example for it: polled, and followed as etcd changes.
# rows: M1
# hosts: none
# debug: no
# timeout: 180
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/memnode.sh"

ktap_start
nodes_up || ktap_bail "three hosts and two nodes"
example=/zrs/userspace/examples/nodes/etcd.sh
export ETCDCTL_ENDPOINTS=http://$ADDR_C:2379 ETCDCTL_DIAL_TIMEOUT=20s ETCDCTL_COMMAND_TIMEOUT=20s
store() {
	start etcd C "ready to serve client requests" etcd --data-dir "$TMP/etcd-data" --unsafe-no-fsync --heartbeat-interval 1000 \
		--election-timeout 10000 --listen-client-urls "$ETCDCTL_ENDPOINTS" --advertise-client-urls "$ETCDCTL_ENDPOINTS"
}
# put KEY LINE
put() { A etcdctl put "$1" "$2" >/dev/null; }
# comes TEXT: the directory of A becomes that.
comes() {
	local _
	for _ in $(seq 1 $((100 * PATIENCE))); do
		[ "$(A zrs mem nodes | xargs)" != "$1" ] || return 0
		nap 0.2
	done
	ktap_say "the directory is: $(A zrs mem nodes | xargs)"
	return 1
}

store || ktap_bail "etcd"
put /zrs/nodes/1:1 "1:1 $ADDR_B" && put /elsewhere/1:9 "1:9 10.77.0.9" || ktap_bail "etcd takes a value"
check "the directory is what etcd has" A zrs mem nodes watch --once -- "$example"
check_eq "and no more" "1:1 $ADDR_B" "$(A zrs mem nodes | xargs)"
check "another prefix" A zrs mem nodes watch --once -- "$example" /elsewhere/
check_eq "has its own nodes" "1:9 10.77.0.9" "$(A zrs mem nodes | xargs)"

start poll A "1 nodes" zrs mem nodes watch --interval 0.5 -- "$example"
check_fails "a node that is not in etcd is not known" "no host serves this node" A zrs mem alloc 1:2 1M
put /zrs/nodes/1:2 "1:2 $ADDR_C"
check "watch has a node that is added" says poll "2 nodes"
check "which can be used" A zrs mem alloc 1:2 1M
stop poll

A zrs mem nodes self 1
start follower A "2 nodes" "$example" --follow
put /zrs/nodes/1:3 "1:3 10.77.0.9"
check "a change arrives" comes "1:1 $ADDR_B 1:2 $ADDR_C 1:3 10.77.0.9"
put /zrs/nodes/1:3 "1:3 nonsense"
check "a value that is no line is told" says follower "is refused"
check_eq "and changes nothing" 3 "$(A zrs mem nodes | wc -l)"
A etcdctl del /zrs/nodes/1:3 >/dev/null
check "a node that is deleted goes" comes "1:1 $ADDR_B 1:2 $ADDR_C"
stop etcd
check_fails "while etcd is down, reading it fails" "failed" A env ETCDCTL_DIAL_TIMEOUT=2s ETCDCTL_COMMAND_TIMEOUT=2s \
	zrs mem nodes watch --once -- "$example"
check_eq "and the directory stays" "1:1 $ADDR_B 1:2 $ADDR_C" "$(A zrs mem nodes | xargs)"
store || ktap_bail "etcd again"
put /zrs/nodes/1:3 "1:3 10.77.0.9"
check "a change after that arrives, too" comes "1:1 $ADDR_B 1:2 $ADDR_C 1:3 10.77.0.9"
stop follower TERM
ktap_done
