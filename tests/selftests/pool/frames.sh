#!/bin/bash
# The page frames that the devices may write to, by kprobes on the driver: registered windows and
# posted receives. A small pool receives much more data than its size, and the devices write to no
# more frames than the pools have. The test cannot see whether the frames are in a cache.
# rows: C2 Z2 Z3
# params: pool_mib=2
# timeout: 90
# debug: full
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

CONNS=32

ktap_start
define_probes "the frames" 'window rdma_rxe:rxe_set_page at=%si' \
	'block rdma_rxe:rxe_post_srq_recv n=+24(%si):s32 one=+0(+16(%si)):x64 two=+16(+16(%si)):x64'
echo 16384 >$TRACING/buffer_size_kb
at_end "echo 1408 >$TRACING/buffer_size_kb"
echo 1 >$TRACING/events/zrstest/enable || ktap_bail "kprobe events"

args=(--conns "$CONNS" --bytes 1M --limit $((80 * SCALE)))
start server B "listening on" zrs-selftest bulk --server "$ADDR_B:7000" "${args[@]}" || ktap_bail "the server"
check_lines A zrs-selftest bulk --client "$ADDR_B:7000" "${args[@]}"
check_ended "the server of them" server
echo 0 >$TRACING/events/zrstest/enable
check "no event was lost" [ "$(cat $TRACING/per_cpu/cpu*/stats | awk '/^overrun/ { n += $2 } END { print n }')" = 0 ]
# An address without its last three digits is a frame's, in Soft-RoCE's numbers.
sed -n 's/.*: window: .* at=0x\([0-9a-f]*\)[0-9a-f]\{3\}$/window \1/p
	s/.*: block: .* n=2 one=0x\([0-9a-f]*\)[0-9a-f]\{3\} two=0x\([0-9a-f]*\)[0-9a-f]\{3\}$/block \2/p' $TRACING/trace >"$TMP/frames"
frames() { grep "^$1" "$TMP/frames" | sort -u | wc -l; }
windows=$(frames window) blocks=$(frames block) all=$(sed 's/.* //' "$TMP/frames" | sort -u | wc -l)
times=$(grep -c ^window "$TMP/frames")
ktap_say "$windows frames in windows, registered $times times; $blocks of blocks; $all in all"
moved=$(sed -n 's/^# \([0-9]*\) MiB on .*/\1/p' "$TMP/lines")
# Two devices, each with a pool.
most=$((2 * $(cat /sys/module/zrs/parameters/pool_mib) << 8))
check "windows and blocks were seen" [ "$windows" -gt 0 -a "$blocks" -gt 0 ]
check "of $moved MiB much more than the pools have" [ "$moved" -ge $CONNS ]
check "the devices write to $most frames at most" [ "$all" -le "$most" ]
check "no window is leaked" zrs_idle
ktap_done
