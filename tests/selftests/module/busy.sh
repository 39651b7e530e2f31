#!/bin/bash
# rmmod is refused while something of the module is in use, and works right after.
# rows: B9 Z2 M5
# debug: full
# timeout: 90
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

here=$(dirname "$0")
ktap_start
SERVE=$ADDR_B:7000
start serve B "listening on" zrs-selftest serve "$SERVE" || ktap_bail "serve"
for what in dev socket listen conn ring map node region queue; do
	hold=(zrs-selftest hold --what "$what")
	case $what in
	dev) text="an open /dev/zrs" host=- args=() ;;
	socket) text="an open socket" host=A args=() ;;
	listen) text="a listening socket" host=A args=(--addr "$ADDR_A:7001") ;;
	conn) text="a connected socket" host=A args=(--addr "$SERVE") ;;
	ring) text="a socket with a mapped ring" host=A args=(--addr "$SERVE") ;;
	map) text="a mapped ring alone" host=A args=(--addr "$SERVE") ;;
	node) text="a memory node" host=A args=() hold=(python3 "$here/busy.py" node) ;;
	region) text="a region of a memory node" host=A args=() hold=(python3 "$here/busy.py" region) ;;
	queue) text="a queue of a memory node" host=A args=() hold=(python3 "$here/busy.py" queue) ;;
	esac
	start "$what" "$host" holding "${hold[@]}" "${args[@]}" || {
		ktap_fail "$text is held"
		continue
	}
	# Only held objects count.
	stop serve
	check_fails "rmmod with $text: EWOULDBLOCK" "Module zrs is in use" rmmod zrs
	stop "$what"
	check "rmmod when it is closed" zrs_unload
	zrs_load || ktap_bail "zrs.ko loads again"
	start serve B "listening on" zrs-selftest serve "$SERVE" || ktap_bail "serve"
done
ktap_done
