#!/bin/bash
# A completion queue is armed before a queue pair has it, so before its first completion can exist:
# kprobes on Soft-RoCE tell the order, on both sides of a link.
# rows: E2
# debug: full
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
# The queues are the third and fourth word of struct ib_qp_init_attr.
define_probes "the order" 'armed rdma_rxe:rxe_req_notify_cq cq=%di' \
	'pair rdma_rxe:rxe_create_qp sends=+16(%si):x64 receives=+24(%si):x64'
echo 1 >$TRACING/events/zrstest/enable || ktap_bail "the probes"
check_pair "from A to B" xfer --sizes 1,100000 --both
echo 0 >$TRACING/events/zrstest/enable
sed -n 's/^.*: \(armed\|pair\): ([^)]*) //p' $TRACING/trace | tr '=' ' ' >"$TMP/order"
awk '
	$1 == "cq" { armed[$2] = 1 }
	$1 == "sends" {
		pairs++
		if (!armed[$2] || !armed[$4]) early++
	}
	END { print pairs + 0, early + 0 }
' "$TMP/order" >"$TMP/seen"
read -r pairs early <"$TMP/seen"
ktap_say "$pairs queue pairs"
check "both sides of the link" [ "$pairs" -ge 2 ]
check_eq "queue pairs whose completion queue was not armed" 0 "$early"
ktap_done
