#!/bin/bash
# Data sent before close() arrives, and then the end, also when the sender's was the last socket of
# its host and the link ends right behind it: about a second after the one before was closed.
# rows: B9 E4 Z1
# machines: any
# debug: full
# timeout: 90
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
port=7000
for pause in 0.6 0.7 0.75 0.8 0.85 0.9; do
	port=$((port + 1))
	start receiver B "listening on" zrs-selftest stream-recv --listen "$ADDR_B:$port" --expect eof --at-least 2M ||
		ktap_bail "a receiver"
	nap "$pause"
	check "$pause s later: sent and closed" A zrs-selftest stream-send "$ADDR_B:$port" --bytes 2M --expect eof
	check_ended "all of it arrives, and the end" receiver
done
ktap_done
