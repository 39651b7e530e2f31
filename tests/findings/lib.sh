# shellcheck shell=bash
# For the guest's scripts of the findings, which end by one of seen, quiet and unclear. Sourced.
. /zrs/tests/lib/hosts.sh

# C programs that tests/findings/run has built.
export BUILT=/zrs/build/findings

# seen TEXT: this kernel has the bug.
seen() {
	echo "$*"
	exit 10
}
# quiet TEXT: it has not.
quiet() {
	echo "$*"
	exit 0
}
# unclear TEXT: something else has kept the script from finding out.
unclear() {
	echo "$*"
	exit 11
}
# await SECONDS CMD...: until the command succeeds; 1 if it does not in time.
await() {
	local end=$((SECONDS + $1))
	shift
	until "$@" >/dev/null 2>&1; do
		[ "$SECONDS" -lt "$end" ] || return 1
		sleep 0.3
	done
}
# dmesg_has PATTERN
dmesg_has() { dmesg | grep -qE "$1"; }
# serve [ARG...]: rping's server in host B, which takes connections until the script's end.
serve() {
	/run/netns-exec zrsB rping -s -P -a "$ADDR_B" "$@" >/dev/null 2>&1 &
	await 60 serving || unclear "rping's server does not listen"
}
serving() { rdma resource show cm_id | grep -q "state LISTEN"; }
# connects: whether host A can make a connection to the server, and use it.
connects() { timeout 60 /run/netns-exec zrsA rping -c -a "$ADDR_B" -C 3 >/dev/null 2>&1; }
