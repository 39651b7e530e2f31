#!/bin/bash
# Bytes that the kernel's processors copy for each byte delivered, as kprobes on the kernel's copy functions
# and on the module's own count them: in every mode, over rsockets and over TCP. What a software RDMA
# device copies in place of hardware is not among them, nor what a library copies (rsockets: each byte twice).
# rows: Z3 Z4 Z5 Z6 B2 B3
# debug: no
# test-module: tests/lib/copycount
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

MIB=64
# copied: bytes so far.
copied() { cat /sys/module/copycount/parameters/copied; }
# transfer CARRIER: MIB messages of 1 MiB.
transfer() {
	A zrs bench --client "$ADDR_B" --only throughput --carriers "$1" --rounds 1 --sizes 1M --messages $MIB \
		--samples "$TMP/$1.samples" >"$TMP/$1" 2>&1 && [ -s "$TMP/$1.samples" ] && return
	sed 's/^/# /' "$TMP/$1"
	return 1
}

ktap_start
insmod /zrs/build/tests/lib/copycount/copycount.ko || ktap_bail "nothing to count with"
at_end "rmmod copycount"
start server B "listening on" zrs bench --server "$ADDR_B:7400" || ktap_bail "the server"
# carrier CARRIER LEAST MOST: thousandths of a copy for each byte.
carrier() {
	local before after got
	before=$(copied)
	transfer "$1" || {
		ktap_fail "$1: $MIB messages of 1 MiB"
		return
	}
	after=$(copied)
	# Two messages go before, to warm up.
	got=$(((after - before) * 1000 / ((MIB + 2) << 20)))
	check "$1: $got of 1000 bytes were copied, $2 to $3 may be" test "$got" -ge "$2" -a "$got" -le "$3"
}
# Connections, figures and the tests' own doing are in it as well: some KiB of 64 MiB.
carrier zrs-zerocopy 0 1
carrier zrs-ring 0 1
carrier zrs-mapped 0 1
carrier zrs 1000 1005
carrier rsockets 0 10
carrier tcp 2000 2010
ktap_done
