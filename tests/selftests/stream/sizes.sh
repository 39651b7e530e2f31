#!/bin/bash
# Sizes around every boundary, both alignments, both ways at once, plain and by the ring; every
# byte is compared.
# rows: Z3 Z4 Z5 Z6 B3 C1
# machines: any
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
sizes=0,1,4095,4096,4097,16384,16385,262144,262145
ways=("" "--align 1" "--both" "--both --align 4095" "--ring" "--ring --both --align 13" "--nonblock --both"
	"--nonblock --ring --both")
[ "$SCALE" = 1 ] || [ "${TIER:-ci}" = full ] || ways=("--both --align 4095" "--ring --both --align 13" "--nonblock --both")
for how in "${ways[@]}"; do
	# shellcheck disable=SC2086 # a list
	check_pair "sizes ${how:-plain}" xfer --sizes $sizes $how --seed "${SEED:-1}"
done
# One send of more than the window of 1 MiB; and the same in pieces that do not divide it.
big=$((1048577 + $(less 2097156)))
check_pair "one send of $big" xfer --sizes "$big" --both
check_pair "one send of $big, by the ring" xfer --sizes "$big" --both --ring
check_pair "pieces of 100001" xfer --sizes "$big" --chunk 100001
check_pair "pieces of 5" xfer --sizes 5000 --chunk 5
ktap_done
