#!/bin/bash
# Making links over software iWARP: source ports that TCP uses already, the reasons for which a peer refuses a
# link, a peer that does not answer (connects to other hosts do not wait for it), and the same source ports
# after the module was loaded again.
# rows: B17 B9 B16 E4
# params: connect_timeout_ms=4000
# timeout: 180
. "$(dirname "$0")/../lib/ktap.sh"
. "$(dirname "$0")/../two-vm/lib.sh"
. "$(dirname "$0")/lib.sh"

OTHER=10.77.0.9
ktap_start
check_lines A zrs-selftest refused "$ADDR_B:7999" --errno ECONNREFUSED

# The link of another test would carry the connects.
again() { A module_out && B module_out && A zrs_load connect_timeout_ms=4000 && B zrs_load connect_timeout_ms=4000; }
serve() { start serve B "listening on" zrs-selftest serve "$ADDR_B:7000" || ktap_bail "serve"; }
connects() { A zrs-selftest poll --peer "$ADDR_B:7000" --local "$ADDR_A" --refused "$ADDR_B:7999"; }
for round in 1 2 3; do
	check "round $round: the modules are loaded again" again
	serve
	check "and B accepts at once" connects
	stop serve
done

# Of each three source ports TCP has two.
check "the modules are loaded again" again
serve
start taken A holding python3 -c '
import socket, time
held = []
for port in range(512, 1024):
    s = socket.socket()
    try:
        if port % 3:
            s.bind(("0.0.0.0", port))
            s.listen()
            held.append(s)
    except OSError:
        pass
print("holding", len(held), flush=True)
time.sleep(600)' || ktap_bail "the ports of TCP"
check "A connects from a port that TCP does not have" connects
stop taken
stop serve

# The peer's module refuses the link, and its reason arrives as an errno.
check "the modules are loaded again" again
serve
B zrs peers deny any
at_end "B zrs peers flush"
check_eq "a peer that does not allow this host: EACCES" EACCES "$(A python3 -c '
import errno, socket, sys
try:
    socket.socket(socket.AF_INET, socket.SOCK_STREAM, 253).connect((sys.argv[1], 7000))
    print("connected")
except OSError as e:
    print(errno.errorcode[e.errno])
' "$ADDR_B")"
B zrs peers flush
check "and one that allows it again" connects
stop serve

# B throws away what A sends to this address, and TCP asks for long.
A sysctl -qw net.ipv4.tcp_syn_retries=6
at_end "A sysctl -qw net.ipv4.tcp_syn_retries=2"
check "A takes $OTHER for B" A eval "ip neigh replace $OTHER lladdr 52:54:00:77:00:02 nud permanent dev eth0"
at_end "A ip neigh del $OTHER dev eth0; B ip addr del $OTHER/24 dev eth0"
serve
check_lines A zrs-selftest refused "$OTHER:7000" --errno ETIMEDOUT --within-ms "$((6000 * SCALE))"
t0=$SECONDS
check "A connects to B's first address while TCP still asks the other one" connects
took=$((SECONDS - t0))
ktap_say "after $took s"
check "without waiting for it" [ "$took" -lt 60 ]
check_eq "which it does" 1 "$(A ss -Htn state syn-sent dst "$OTHER" | wc -l)"
stop serve
check "B has the address" B ip addr add "$OTHER/24" dev eth0
check_within "TCP has its answer, and the link ends" 60 no_links A
ktap_done
