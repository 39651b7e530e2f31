#!/bin/bash
# Small messages in the receive ring: they wait in memory of the program and in no block, in order with large ones,
# beside recv() and MSG_PEEK, and where the ring was made late; a program that holds them stops its peer and nobody
# else; large data escapes beside them; rings that did not ask for them fetch them by recv().
# rows: B3 C4 C5 Z6
# machines: any
# debug: full
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
for what in waiting ended flags late held; do
	check_pair "$what" ringsmall --what $what
done
messages=$(less 1000)
check_pair "$messages small and large messages" ringsmall --what mixed --messages "$messages" --seed "${SEED:-1}"
set_param escape always || ktap_bail "the policy"
check_pair "escape beside them" ringsmall --what escapes
check_pair "the same mixture, and all that can escape does" ringsmall --what mixed --messages "$messages" --seed 2

# A reader that has them in its ring is killed.
start receiver B "listening on" zrs-selftest stream-recv --listen "$ADDR_B:7900" --expect eof --stall --ring &&
	start sender A sending zrs-selftest stream-send "$ADDR_B:7900" --expect epipe,reset --chunk 1000 &&
	says receiver receiving || ktap_bail "traffic"
nap 0.3
stop receiver
check_ended "a reader that does not read is killed: EPIPE or ECONNRESET" sender
check "no window is leaked" zrs_idle
ktap_done
