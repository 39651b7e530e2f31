#!/bin/bash
# Programs that do what no program should: arguments, rings and memory that change or go while the
# kernel uses them, sockets closed and processes killed in every state, signals, exhaustion. After
# each, nothing is left of it, and a connection on the same link has noticed nothing.
# rows: B9 B11 Z2 Z4 Z6 B3 E3
# params: connect_timeout_ms=6000
# timeout: 240
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
seed=${SEED:-1}
ms=3000 many=100
[ "$SCALE" = 1 ] || ms=1000 many=20
[ "${TIER:-ci}" != full ] || ms=20000
ktap_say "SEED=$seed"

start serve B "listening on" zrs-selftest serve "$ADDR_B:7000" || ktap_bail "serve"
# The bystander reads lines from a pipe: one makes it go on, the next one rest.
mkfifo "$TMP/turns"
exec {turns}<>"$TMP/turns"
A zrs-selftest bystander "$ADDR_B:7000" --seed "$seed" --patience $((20 * PATIENCE)) <"$TMP/turns" >>"$TMP/bystander" 2>&1 &
# shellcheck disable=SC2154 # a key
PID[bystander]=$!
at_end "kill -9 $!; wait $!"
says bystander ready || ktap_bail "the bystander"

# left: what there is of everything while the bystander rests; of the pool, what is used besides the windows of open
# sockets: those of the bystander may be asked back, and exchanged for larger ones, at any time.
left() {
	local windows
	windows=$({ A zrs ss -a --json && B zrs ss -a --json; } | jq -s 'add | map(.window) | add // 0')
	zrs stats --json | jq -r --argjson windows "$windows" '
		.pool_used -= $windows | . as $all |
		("pages_pinned", "sockets", "channels", "pool_used", "protocol_errors") | "\(.)=\($all[.])"' | tr '\n' ' '
}
# The end of its first transfer may not have been seen yet.
before=$(left)
for _ in $(seq 1 $((20 * PATIENCE))); do
	nap 0.5
	now=$(left)
	[ "$now" != "$before" ] || break
	before=$now
done
ktap_say "at rest: $before"

# no_more NOW: everything is as before, and no more of the pool is used than then.
no_more() {
	local used=${1#*pool_used=} was=${before#*pool_used=}
	[ "${1/pool_used=${used%% *}/}" = "${before/pool_used=${was%% *}/}" ] && [ "${used%% *}" -le "${was%% *}" ]
}

# nothing_left: waits until there is no more than before; closed connections have 10 s to end.
nothing_left() {
	local now end=$((SECONDS + 15 * PATIENCE))
	while now=$(left); ! no_more "$now"; do
		[ "$SECONDS" -lt "$end" ] || {
			echo "$now"
			mount -t debugfs debugfs /sys/kernel/debug 2>/dev/null
			cat /sys/kernel/debug/zrs/links
			B zrs ss
			return 1
		}
		sleep 0.2
	done
}

for what in ${CASES:-fetch ring unmap memory mapping lent close signals kill exhaust}; do
	: >"$TMP/bystander"
	echo >&"$turns"
	check_lines timeout -k 5 $(((60 * SCALE + ms / 200) * PATIENCE / SCALE)) ip netns exec zrsA zrs-selftest --limit $((55 * SCALE + ms / 200)) \
		hostile --what "$what" --peer "$ADDR_B:7000" --local "$ADDR_A" --seed "$seed" --ms "$ms" --many "$many"
	echo >&"$turns"
	says bystander resting 30 || ktap_bail "$what: the bystander does not answer"
	while IFS= read -r line; do
		case $line in
		"ok - "*) ktap_pass "$what: ${line#ok - }" ;;
		"not ok - "*) ktap_fail "$what: ${line#not ok - }" ;;
		"# "*) ktap_say "${line#\# }" ;;
		esac
	done <"$TMP/bystander"
	check "$what: nothing is left behind" nothing_left
	kill -0 "${PID[serve]}" || ktap_bail "$what: the server is gone"
done
ktap_done
