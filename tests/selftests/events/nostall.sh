#!/bin/bash
# Completions are never lost, whenever they come: thousands of questions and answers with random
# pauses, so that queues are found empty, armed without need, and filled between drain and arm.
# Nothing else looks at a queue: there are no heartbeats, and a round that stands still is too long.
# rows: E2 E3 Z8 B4
# params: heartbeat_ms=0
# timeout: 150
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
# A socket of each host that stays, so that the links do: their end would flush.
for h in A B; do
	start "hold$h" $h holding zrs-selftest hold --what socket || ktap_bail "hold"
done
# counts: completions, blocks posted, completions asked for.
counts() { c=$(counter completions) r=$(counter recv_requests) s=$(counter signaled); }
# at_rest: the same, when they stay as they are.
at_rest() {
	local last=
	until counts && [ "$c $r $s" = "$last" ]; do
		last="$c $r $s"
		nap 0.5
	done
}
# Any round is over long before.
asks() {
	local text=$1
	shift
	check_pair "$text" pingpong --round-ms $((20000 * SCALE)) "$@"
}
# A link has its blocks, some of them spare, from its beginning.
asks "a question that makes the link" --conns 1 --rounds 1
at_rest
c0=$c r0=$r s0=$s
asks "questions on one connection" --conns 1 --rounds "$(less 2000)" --most 512 --pause-us 500
asks "on eight connections at once" --conns 8 --rounds "$(less 500)" --seed "${SEED:-2}"
asks "by the ring" --conns 4 --rounds "$(less 250)" --most 64k --ring --seed "${SEED:-3}"
asks "non-blocking" --conns 4 --rounds "$(less 250)" --most 64k --nonblock --seed "${SEED:-4}"
asks "with long pauses" --conns 2 --rounds 10 --pause-us 300000 --seed "${SEED:-5}"

# Each message that arrived has a completion, and its block has been posted again; each that was
# sent has one if that was asked for.
balance() {
	local _
	for _ in $(seq 1 $((100 * PATIENCE))); do
		counts
		[ "$((c - c0))" != "$((r - r0 + s - s0))" ] || return 0
		nap 0.1
	done
	echo "$((c - c0)) completions, $((r - r0)) messages arrived, $((s - s0)) completions asked for"
	return 1
}
check "no completion is missing, none came twice" balance
ktap_say "completion events that found nothing: $(counter empty_events) of $(counter completions) completions"
ktap_done
