#!/bin/bash
# Two machines and nothing goes wrong: connections and transfers in both directions, readiness, and
# links that carry them.
# rows: Z1 Z4 Z5 E1 E4 B4
# params: connect_timeout_ms=4000
# timeout: 120
. "$(dirname "$0")/../lib/ktap.sh"
. "$(dirname "$0")/lib.sh"

ktap_start
check_pair "A connects to B: every size, both ways" xfer --sizes 1,4096,4097,16384,300000,4M --both
check_pair "the same by the ring" xfer --sizes 1,4097,300000,4M --both --ring
check_pair "the same non-blocking" xfer --sizes 1,4097,300000,1M --both --nonblock
# The other way round.
start receiver A "listening on" zrs-selftest stream-recv --listen "$ADDR_A:7100" --expect eof --at-least 8M &&
	start ring A "listening on" zrs-selftest stream-recv --listen "$ADDR_A:7101" --expect eof --at-least 8M --ring ||
	ktap_bail "receivers"
check "B connects to A and sends 8 MiB" B zrs-selftest stream-send "$ADDR_A:7100" --bytes 8M --expect eof
check "and 8 MiB to a ring" B zrs-selftest stream-send "$ADDR_A:7101" --bytes 8M --expect eof
check_ended "every byte has come" receiver
check_ended "in the ring too" ring
for host in A B; do
	if [ "$host" = A ]; then at=$ADDR_A other=B to=$ADDR_B; else at=$ADDR_B other=A to=$ADDR_A; fi
	start "serve$host" "$other" "listening on" zrs-selftest serve "$to:7200" || ktap_bail "serve"
	check_lines "$host" zrs-selftest poll --peer "$to:7200" --local "$at" --refused "$to:7999"
	check_lines "$host" zrs-selftest refused "$to:7999" --errno ECONNREFUSED
	start "hold$host" "$host" holding zrs-selftest hold --what conn --addr "$to:7200" || ktap_bail "hold"
done
check_eq "a link for each direction, in each guest" "2 2" "$(links A) $(links B)"
ktap_done
