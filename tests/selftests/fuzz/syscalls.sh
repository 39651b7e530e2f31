#!/bin/bash
# The system calls on ZRS sockets and /dev/zrs, fuzzed: the corpus first, then programs drawn from
# SEED and from programs that reach new code, for a minute (TIER=full: ten; or FUZZ_SECONDS). No
# child of it may hang, nothing may stay behind, the kernel log stays clean, and Rust code is
# covered.
# rows: B1 B3 B11
# timeout: 160
# debug: only
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

TOP=$(cd "$(dirname "$0")/../../.." && pwd)
ktap_start
seconds=${FUZZ_SECONDS:-$([ "${TIER:-ci}" = full ] && echo 600 || echo 60)}
out=/results/fuzz
rm -rf "$out"

check "the corpus has every call of the description" zrs-fuzz check "$TOP/tests/fuzz/corpus"
rc=0
zrs-fuzz fuzz --scale "$SCALE" --corpus "$TOP/tests/fuzz/corpus" --seconds "$seconds" \
	--seed "${SEED:-1}" --out "$out" --module "$ZRS_KO" >"$TMP/fuzz" 2>&1 || rc=$?
sed 's/^/# /' "$TMP/fuzz"
check_eq "fuzzing finds nothing (exit status of zrs-fuzz)" 0 "$rc"

# value NAME: of the last line that has NAME=number.
value() { sed -n "s/.*\<$1=\([0-9]*\).*/\1/p" "$TMP/fuzz" | tail -1; }
# at_least TEXT NUMBER LEAST
at_least() {
	if [ "${2:-0}" -ge "$3" ]; then ktap_pass "$1: $2"; else ktap_fail "$1: ${2:-none}, expected $3 or more"; fi
}
corpus=$(ls "$TOP"/tests/fuzz/corpus/*.txt | wc -l)
at_least "programs beyond the corpus" $(($(value programs) - corpus)) $((seconds > 0))
at_least "covered points of zrs.ko" "$(value points)" 700
at_least "of these in Rust functions" "$(value rust)" 600
ktap_done
