# shellcheck shell=bash
# For the selftests of the area apps: the same program on TCP, on rsockets' preload and on ZRS. Sourced after
# tests/selftests/lib.sh.

# measure PROGRAM WHAT UNIT FUNCTION: FUNCTION starts a server in B by `serve`, runs a client in A, both with the
# words of WITH in front, and gives a number to `value`. That it does so on ZRS is a result; what came of the three is a
# line of /results/apps.tsv. (rsockets cannot run all of them.)
WITH=() VALUE=
measure() {
	local program=$1 what=$2 unit=$3 fn=$4 carrier values=()
	for carrier in tcp rsockets zrs; do
		# shellcheck disable=SC2034 # for FUNCTION
		case $carrier in
		tcp) WITH=() ;;
		rsockets) WITH=(env LD_PRELOAD=/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so) ;;
		zrs) WITH=(zrs run --) ;;
		esac
		VALUE=
		"$fn" >"$TMP/app" 2>&1 || VALUE=
		[[ $VALUE =~ ^[0-9.]+$ ]] || VALUE=fails
		if [ "$carrier" = zrs ] && [ "$VALUE" != fails ]; then
			ktap_pass "$program: $what: $VALUE $unit"
		elif [ "$VALUE" = fails ]; then
			sed 's/^/#   /' "$TMP/app" | tail -12
			[ "$carrier" = zrs ] && ktap_fail "$program: $what" ||
				ktap_say "$program: $what: $carrier fails"
		fi
		values+=("$VALUE")
		served
	done
	printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$program" "$what" "$unit" "${values[@]}" >>/results/apps.tsv
}

value() { VALUE=$1; }

SERVERS=()
# serve HOST TEXT CMD...: as start; ended when the measurement is over. Without TEXT it gets a second.
serve() {
	local name=server${#SERVERS[@]} host=$1 text=$2
	shift 2
	SERVERS+=("$name")
	start "$name" "$host" "$text" "$@" || return 1
	[ -n "$text" ] || nap "$SCALE"
	return 0
}
served() {
	local name
	for name in "${SERVERS[@]}"; do
		kill "${PID[$name]}" 2>/dev/null
	done
	[ ${#SERVERS[@]} = 0 ] || nap 0.5
	for name in "${SERVERS[@]}"; do
		stop "$name"
	done
	SERVERS=()
}

# client CMD...: in A, for half a minute at most.
client() { A timeout -k 2 $((30 * SCALE)) "$@"; }

# version TEXT: the first thing in it that looks like one.
version() { grep -oE '[0-9]+\.[0-9]+(\.[0-9]+)?(p[0-9]+)?' <<<"$1" | head -1; }
