#!/bin/bash
# Connections with data in flight in other hands: dup, fork, exec, SCM_RIGHTS, pidfd_getfd,
# io_uring; every byte of both directions is compared, and a connection ends with its last holder.
# The same over TCP.
# rows: B1
# machines: any
# timeout: 180
# debug: full
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
for protocol in 253 6; do
	handed=(zrs-selftest --protocol "$protocol" handed --seed "${SEED:-1}")
	start "server$protocol" B "listening on" "${handed[@]}" --server "$ADDR_B:7000" || ktap_bail "server"
	check_lines A "${handed[@]}" --client "$ADDR_B:7000" --local "$ADDR_A"
	show "server$protocol"
	[ "$protocol" = 6 ] || ktap_say "over TCP:"
done
ktap_done
