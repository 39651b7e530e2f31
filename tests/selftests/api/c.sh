#!/bin/bash
# The examples of the C and of the Rust library move a file from host to host, each to each: every
# byte arrives, and none is copied.
# rows: B2 B3 B13 Z4 Z6
# machines: any
# debug: full
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

EXAMPLES=/zrs/build/userspace/release/examples
mib=$(less 32)
port=7000
# Files of the hosts.
sent=/tmp/zrs-sent copy=/tmp/zrs-copy
# moves SENDER RECEIVER: a file.
moves() {
	local text="$1 to $2"
	port=$((port + 1))
	start receiver B "listening on" sh -c "exec $EXAMPLES/$2 recv $ADDR_B:$port >$copy" || {
		ktap_fail "$text: the receiver"
		return
	}
	check "$text: $mib MiB are sent" A sh -c "exec $EXAMPLES/$1 send $ADDR_B:$port <$sent"
	check_eq "$text: the sender copied nothing" "sent $((mib << 20)) bytes, copied 0" "$(tail -1 "$TMP/out")"
	check_ended "$text: the receiver has the end" receiver
	check_eq "$text: it copied nothing" "received $((mib << 20)) bytes, copied 0" "$(tail -1 "$TMP/receiver")"
	want=$(A sha256sum $sent) && [ -n "$want" ] || ktap_bail "the file that was sent"
	check_eq "$text: the same bytes" "${want%% *}" "$(B sha256sum $copy | cut -d' ' -f1)"
}

ktap_start
at_end "A rm -f $sent; B rm -f $copy"
A sh -c "head -c ${mib}M /dev/urandom >$sent"
moves ring ring
moves ring zero_copy
moves zero_copy ring
moves zero_copy zero_copy
check_eq "bytes that the module copied, sending and receiving" "0 0" "$(counter tx_copied) $(counter rx_copied)"
ktap_done
