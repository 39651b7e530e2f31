#!/bin/bash
# Keys over software iWARP, where the connector has to send first: two machines with the same key have links,
# whichever of them connects, that carry data, one without the key or with another one has none.
# rows: B16 B17
# params: connect_timeout_ms=4000
# timeout: 120
. "$(dirname "$0")/../lib/ktap.sh"
. "$(dirname "$0")/../two-vm/lib.sh"

# key HOST NET SECRET: the host has the key for the network.
key() { "$1" eval "echo $3 >/run/zrs-key && chmod 600 /run/zrs-key && zrs key add $2 k --file /run/zrs-key"; }
no_keys() { for host in A B; do "$host" eval "zrs key list | while read -r net name _; do zrs key remove \$net \$name; done"; done; }
proved() { "$1" zrs key list --counts | tr ',' '\n' | sed -n 's/.*proved \([0-9]*\).*/\1/p'; }
# answer HOST ADDR: how a connect from the host ends.
answer() {
	"$1" python3 -c '
import errno, socket, sys
try:
    socket.socket(socket.AF_INET, socket.SOCK_STREAM, 253).connect((sys.argv[1], 7000))
    print("connected")
except OSError as e:
    print(errno.errorcode[e.errno])
' "$2"
}
serve() { start serve "$1" "listening on" zrs-selftest serve "$2:7000" || ktap_bail "serve"; }

ktap_start
at_end no_keys
check "A has a key for B" key A "$ADDR_B/32" 0123456789abcdef0123456789abcdef
serve B "$ADDR_B"
check_eq "B has none: EACCES" EACCES "$(answer A "$ADDR_B")"
check "B has the same" key B "$ADDR_A/32" 0123456789abcdef0123456789abcdef
check_eq "A connects" connected "$(answer A "$ADDR_B")"
stop serve
serve A "$ADDR_A"
check_eq "B connects" connected "$(answer B "$ADDR_A")"
stop serve
check_pair "data in both directions" xfer --sizes 1,4096,300000 --both
A zrs key list --counts >"$TMP/counts"
cat "$TMP/counts"
check "A has proved it ($(proved A))" [ "$(proved A)" -ge 1 ]
check "and B ($(proved B))" [ "$(proved B)" -ge 1 ]

check "without keys" no_keys
check "A has another key" key A "$ADDR_B/32" 0123456789abcdef0123456789abcdef
check "than B" key B "$ADDR_A/32" fedcba9876543210fedcba9876543210
serve B "$ADDR_B"
check_eq "EACCES" EACCES "$(answer A "$ADDR_B")"
check "without keys" no_keys
check_eq "A connects" connected "$(answer A "$ADDR_B")"
stop serve
ktap_done
