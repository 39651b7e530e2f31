# shellcheck shell=bash
# For tests of memory nodes in two machines or three: machine A serves node 1:1, B node 1:2, C node 1:3. Sourced after
# ktap.sh and two-vm/lib.sh.

# The tests' parameters give 7 times 0.54 s; the rest is for the emulated machines.
BOUND=15
LOST="ECONNRESET|EHOSTUNREACH|ENODEV"

# serve HOST NODE: that node, and the directory.
serve() {
	"$1" zrs mem nodes self 1 && "$1" zrs mem nodes add 1:1 "$ADDR_A" && "$1" zrs mem nodes add 1:2 "$ADDR_B" &&
		"$1" zrs mem nodes add 1:3 "$ADDR_C" &&
		start "node$1" "$1" "serving node" zrs mem serve --node "$2" --size 24M --host-percent 100 --open
}
# region HOST NODE: the storage id of a new region, which that host allocates.
region() { "$1" zrs mem alloc "$2" 2M; }
# copier NAME HOST SOURCE TARGET: that host asks for copies, one after the other.
copier() { start "$1" "$2" copying python3 /zrs/tests/selftests/memnode/copier.py "$3" "$4"; }
# lost NAME TEXT: the copier ends in time.
lost() {
	check_ended "$2" "$1" $BOUND
	check "with the errno of a lost host" grep -qE "^ended: ($LOST)" "$TMP/$1"
	ktap_say "$(tail -1 "$TMP/$1")"
}
# goes_on NAME: the copier copies again.
goes_on() {
	local seen _
	seen=$(grep -c copying "$TMP/$1")
	for _ in $(seq 1 $((20 * 20 * SCALE))); do
		[ "$(grep -c copying "$TMP/$1")" -le $((seen + 1)) ] || return 0
		sleep 0.05
	done
	return 1
}
# writer HOST REGION: that host writes it again and again.
writer() { start writer "$1" writing python3 /zrs/tests/selftests/memnode/hammer.py "$2"; }
# writer_lost: the writer has ended, as its link was lost.
writer_lost() {
	ended writer $BOUND
	grep -qE "^after [0-9]+ writes: (Connection reset|No route)" "$TMP/writer"
}
