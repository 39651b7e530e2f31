#!/bin/bash
# Bytes that the kernel copies for each byte delivered, counted by kprobes on the kernel's copy
# functions and on the module's own: in every mode, over rsockets and over TCP. Copies by a software
# RDMA device in place of hardware are not counted, nor copies by a library (rsockets: each byte
# twice).
# rows: Z3 Z4 Z5 Z6 B2 B3
# debug: no
# test-module: tests/lib/copycount
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

MIB=64
# copied: bytes so far.
copied() { cat /sys/module/copycount/parameters/copied; }
# transfer CARRIER KIB N: N messages of KIB KiB.
transfer() {
	A zrs bench --client "$ADDR_B" --only throughput --carriers "$1" --rounds 1 --sizes "$2K" --messages "$3" \
		--samples "$TMP/$1.samples" >"$TMP/$1" 2>&1 && [ -s "$TMP/$1.samples" ] && return
	sed 's/^/# /' "$TMP/$1"
	return 1
}

ktap_start
insmod /zrs/build/tests/lib/copycount/copycount.ko || ktap_bail "nothing to count with"
at_end "rmmod copycount"
start server B "listening on" zrs bench --server "$ADDR_B:7400" || ktap_bail "the server"
# judge TEXT BEFORE AFTER BYTES LEAST MOST: thousandths of a copy for each byte.
judge() {
	local got=$((($3 - $2) * 1000 / $4))
	check "$1: $got of 1000 bytes were copied, $5 to $6 may be" test "$got" -ge "$5" -a "$got" -le "$6"
}
# carrier CARRIER LEAST MOST [KIB N]: N messages of KIB KiB; 64 of 1 MiB by default.
carrier() {
	local before kib=${4:-1024} n=${5:-$MIB}
	before=$(copied)
	transfer "$1" "$kib" "$n" || {
		ktap_fail "$1: $n messages of $kib KiB"
		return
	}
	# Two messages go before, to warm up.
	judge "$1, $kib KiB" "$before" "$(copied)" $(((n + 2) * kib << 10)) "$2" "$3"
}
# nonblocking CHUNK LEAST MOST [ARGS...]: a stream by non-blocking calls that send CHUNK each.
nonblocking() {
	local before chunk=$1 least=$2 most=$3
	shift 3
	before=$(copied)
	check_pair "non-blocking, $chunk each $*" xfer --nonblock --sizes 16M --chunk "$chunk" "$@"
	judge "non-blocking, $chunk each $*" "$before" "$(copied)" $((16 << 20)) "$least" "$most"
}
# copy_tail KIB: of a blocking send that is copied.
copy_tail() { echo "$1" >/sys/module/zrs/parameters/copy_tail_kib; }
at_end "copy_tail 64"
copy_tail 0
# Connections, figures and the tests' own doing are in it as well: some KiB of 64 MiB.
carrier zrs-zerocopy 0 5
carrier zrs-ring 0 5
carrier zrs-mapped 0 5
carrier zrs 1000 1005
carrier rsockets 0 10
carrier tcp 2000 2010
# The sender copies messages below pin_threshold and those of non-blocking calls; recv() copies once
# more. The kernel copies some hundred bytes of arguments and notifications a message.
carrier zrs-ring 1000 1012 8 2048
carrier zrs 2000 2012 8 2048
carrier zrs-ring 1000 1008 15 1024
carrier zrs-ring 0 8 16 1024
carrier zrs-zerocopy 0 12 8 2048
# With a tail, 64 KiB of each message, and the whole of those that are not longer.
copy_tail 64
carrier zrs-ring 62 68
carrier zrs 1062 1068
carrier zrs-ring 500 508 128 256
carrier zrs-ring 1000 1008 16 1024
carrier zrs-zerocopy 0 5
# A non-blocking call may copy more than the link takes.
nonblocking 64k 1000 1200 --ring
nonblocking 64k 2000 2200
nonblocking 8k 1000 1200 --ring
ktap_done
