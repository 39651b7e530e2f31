#!/bin/bash
# What a transfer costs in copies, work requests, completions and system calls: as in the baseline.
# rows: Z4 Z6 Z8 B2 B3
# debug: no
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
# "ip netns exec" gives a host a /sys of its own, in which system calls can be counted only then.
traced='mount -t tracefs tracefs /sys/kernel/tracing 2>/dev/null; exec "$@"'
start server B "listening on" bash -c "$traced" - zrs bench --server "$ADDR_B:7400" || ktap_bail "the server"
measure() { # measure SIZE MESSAGES
	A bash -c "$traced" - zrs bench --client "$ADDR_B" --only cost --carriers zrs,zrs-ring,zrs-zerocopy,zrs-mapped --rounds 3 \
		--sizes "$1" --messages "$2" --samples "$TMP/samples"
}
check "messages of 1 MiB" measure 1M 24
check "messages of 64 bytes" measure 64 2000
check_lines zrs-bench-report counts "$TMP/samples" "$KTAP_LIB/../baseline.json" --key "$(uname -r)"
ktap_done
