#!/bin/bash
# Landlock and seccomp with ZRS sockets, compared with TCP sockets; programs in the sandbox of the kernel's
# samples, under `zrs run`, as over TCP.
# rows: B16 B14
# params: connect_timeout_ms=6000 fallback_ms=3000
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
here=$(dirname "$0")
check_lines /run/netns-exec zrsB python3 "$(dirname "$0")/restricted.py"
# sandboxed CMD...: what such a program says of four ports: it may bind the first and connect to the second one.
sandboxed() {
	B python3 "$here/sandboxer.py" 7410 7411 "$@" python3 "$here/sandboxer.py" try "$ADDR_B" 7410 7411 7412
}
start web1 B "" python3 -m http.server 7411
start web2 B "" python3 -m http.server 7412
for _ in $(seq 1 $((200 * PATIENCE))); do
	B curl -s --max-time 5 "http://$ADDR_B:7411/" >/dev/null && B curl -s --max-time 5 "http://$ADDR_B:7412/" >/dev/null && break
	nap 0.1
done
rc=0
sandboxed env >"$TMP/tcp" || rc=$?
if [ "$rc" = 77 ]; then
	ktap_skip "the sandboxer" "this kernel has no Landlock for TCP"
else
	check_eq "the sandboxer: TCP" "7410 no error EACCES;7411 EACCES no error;7412 EACCES EACCES;" "$(tr '\n' ';' <"$TMP/tcp")"
	for mode in auto required only; do
		check_eq "the sandboxer: zrs run --tcp=$mode" "$(cat "$TMP/tcp")" "$(sandboxed zrs run "--tcp=$mode" --)"
	done
fi
B zrs set --net tcp_no_new_privs=1 || ktap_bail "zrs set"
at_end "B zrs set --net tcp_no_new_privs=0"
check_lines /run/netns-exec zrsB python3 "$(dirname "$0")/restricted.py" allowed
ktap_done
