# shellcheck shell=bash
# For selftests: KTAP lines, the two hosts, cleaning up. A test begins
#
#   #!/bin/bash
#   # What it shows.
#   # rows: Z4 B2
#   . "$(dirname "$0")/../../lib/ktap.sh"
#   ktap_start 2                        (a plan; without a number the plan comes at the end)
#   check "connects" A zrs ping 10.77.0.2
#   ktap_done
#
# and may set, in further comments, parameters for the runner:
#   # hosts: none            no namespaces (default: both, which tests share; "own": new ones, for a test that
#                            changes addresses, interfaces, devices or settings of a host)
#   # module: none           zrs.ko is not loaded for it (default: loaded before, unloaded after)
#   # params: pool_mib=8     the module's parameters
#   # timeout: 120           seconds (default 60)

KTAP_LIB=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$KTAP_LIB/hosts.sh"
. "$KTAP_LIB/module.sh"
. "$KTAP_LIB/process.sh"
KTAP_N=0 KTAP_FAILED=0 KTAP_PLAN=0 KTAP_ENDED=0
KTAP_CLEAN=()
TMP=$(mktemp -d /tmp/zrs-test.XXXXXX)
export TMP

ktap_start() {
	KTAP_PLAN=${1:-0}
	echo "KTAP version 1"
	[ "$KTAP_PLAN" = 0 ] || echo "1..$KTAP_PLAN"
}
ktap_pass() {
	KTAP_N=$((KTAP_N + 1))
	echo "ok $KTAP_N - $*"
}
ktap_fail() {
	KTAP_N=$((KTAP_N + 1))
	KTAP_FAILED=$((KTAP_FAILED + 1))
	echo "not ok $KTAP_N - $*"
}
# ktap_skip NAME REASON
ktap_skip() {
	KTAP_N=$((KTAP_N + 1))
	echo "ok $KTAP_N - $1 # SKIP ${2:-}"
}
ktap_say() { echo "# $*"; }
# ktap_bail REASON: the rest cannot be run.
ktap_bail() {
	ktap_fail "$*"
	ktap_done
}
ktap_done() {
	KTAP_ENDED=1
	if [ "$KTAP_PLAN" = 0 ]; then
		echo "1..$KTAP_N"
	elif [ "$KTAP_PLAN" != "$KTAP_N" ]; then
		echo "# planned $KTAP_PLAN, ran $KTAP_N"
		KTAP_FAILED=$((KTAP_FAILED + 1))
	fi
	exit $((KTAP_FAILED > 0))
}

# check NAME CMD...: passes if the command succeeds; its output is shown if not.
check() {
	local name=$1 rc=0
	shift
	"$@" >"$TMP/out" 2>&1 || rc=$?
	if [ "$rc" = 0 ]; then
		ktap_pass "$name"
	else
		sed 's/^/#   /' "$TMP/out" | tail -20
		ktap_fail "$name (exit status $rc)"
	fi
	return 0
}
# check_fails NAME TEXT CMD...: passes if the command fails and says TEXT (a regular expression).
check_fails() {
	local name=$1 text=$2 rc=0
	shift 2
	"$@" >"$TMP/out" 2>&1 || rc=$?
	if [ "$rc" != 0 ] && grep -qE "$text" "$TMP/out"; then
		ktap_pass "$name"
	else
		sed 's/^/#   /' "$TMP/out" | tail -20
		ktap_fail "$name (exit status $rc, expected a failure that says $text)"
	fi
	return 0
}
# check_eq NAME EXPECTED GOT
check_eq() {
	if [ "$2" = "$3" ]; then ktap_pass "$1"; else ktap_fail "$1: expected '$2', got '$3'"; fi
}

# at_end CMD: one string, run when the test ends however it ends, last one first.
at_end() { KTAP_CLEAN=("$1" "${KTAP_CLEAN[@]}"); }
ktap_exit() {
	local rc=$? c
	for c in "${KTAP_CLEAN[@]}"; do eval "$c" >/dev/null 2>&1; done
	# Children of the test must not outlive it: they would keep the module in use.
	local j
	for j in $(jobs -p); do kill "$j" 2>/dev/null; done
	wait 2>/dev/null
	rm -rf "$TMP"
	if [ "$KTAP_ENDED" = 0 ]; then
		echo "# the test ended early, exit status $rc"
		rc=1
	fi
	exit "$rc"
}
trap ktap_exit EXIT
