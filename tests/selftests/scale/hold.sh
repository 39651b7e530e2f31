#!/bin/bash
# Many connections open at once, CONNS of them (both ends are in this kernel): few links carry them,
# each answers, an idle endpoint takes little memory, and all of it comes back.
# rows: B4 B5 L1 L2 L3 L4
# debug: full
# params: max_channels=131072 escape_mib=16384 connect_timeout_ms=20000
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
conns=$(less "${CONNS:-5000}")
more=()
# The debug kernel's objects are larger.
[ "${ZRS_KERNEL:-stock}" != stock ] || more=(--most-bytes 6144)
# Each end has a descriptor for each connection.
ulimit -n $((conns + 1000)) || ktap_bail "ulimit -n"
limit=$(((100 + conns / 25) * SCALE))

# crowd N ARGS...: N connections, from being made to being ended.
crowd() {
	local n=$1
	shift
	start server B "listening on" zrs-selftest --limit "$limit" crowd --server "$ADDR_B:7000" --conns "$n" ||
		ktap_bail "the server"
	check_lines A zrs-selftest --limit "$limit" crowd --client "$ADDR_B:7000" --conns "$n" "$@"
	check_ended "the server of $n connections" server
}
at_rest() {
	check "nothing is left of them" zrs_idle
	kernel_memory "$1"
}

# One-time allocations: the link table keeps places for the highest number of channels so far, and each
# processor keeps some MiB of free pages, which count as in use. So the second crowd's memory is judged.
crowd "$conns"
at_rest before
# shellcheck disable=SC2154 # kernel_memory sets it
before=$kernel_kb
crowd "$conns" "${more[@]}"
at_rest after
grown=$((kernel_kb - before))
ktap_say "$conns connections that have ended leave $grown KiB of kernel memory behind"
no_leak before after "$grown" "$conns"
ktap_done
