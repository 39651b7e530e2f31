#!/bin/bash
# Segments are announced as they land: a reader works on the first one of a message while the last
# one cannot have been sent, by recv() and by the ring.
# debug: full
# rows: C4 C3 Z6
# machines: any
# timeout: 60
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
messages=$(less 4)
for policy in never always; do
	set_param escape "$policy" || ktap_bail "the policy $policy"
	check_pair "recv(), $policy" lands --messages "$messages"
	check_pair "a ring, $policy" lands --messages "$messages" --ring
done
check "no window is leaked" zrs_idle
ktap_done
