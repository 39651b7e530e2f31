# shellcheck shell=bash
# Kernel memory without references, found by the debug kernel on demand. Sourced.

KMEMLEAK=/sys/kernel/debug/kmemleak

# kmemleak_there: whether this kernel looks for leaks.
kmemleak_there() { [ -w "$KMEMLEAK" ] && echo scan=off >"$KMEMLEAK" 2>/dev/null; }

# Objects younger than 5 s are not reported, and one that was changed during a scan only by the
# next: so wait, and scan twice.
kmemleak_scan() {
	sleep 6
	echo scan >"$KMEMLEAK"
	echo scan >"$KMEMLEAK"
}

# kmemleak_start: leaks of the boot do not count.
kmemleak_start() {
	kmemleak_scan
	echo clear >"$KMEMLEAK"
}

# kmemleak_take FILE: scans, appends what is new to FILE and forgets it; 1 if there was any.
kmemleak_take() {
	kmemleak_scan
	cat "$KMEMLEAK" >/run/kmemleak.new
	[ -s /run/kmemleak.new ] || return 0
	cat /run/kmemleak.new >>"$1"
	echo clear >"$KMEMLEAK"
	return 1
}
