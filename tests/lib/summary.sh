# shellcheck shell=bash
# The end of a run of tests: results as JSON, the slowest tests, the failed ones, the sum. Sourced
# by tests/test and its kin after tests/vm/lib.sh.

# summary TARGET TSV...: from lines "verdict <tab> name <tab> rows <tab> seconds". Leaves
# results/TARGET.json; the last line is "N passed, N failed, N skipped". Fails if one test failed or
# none passed.
summary() {
	local target=$1 failed t seconds=$(($(date +%s) - ZRS_T0))
	shift
	"$ZRS_VM/in-root" python3 tests/lib/results.py "results/$target.json" "$(cat "$(kernel_dir)/release")" \
		"${SEED:-}" "$@"
	count() { cat "${all[@]}" 2>/dev/null | grep -c "^$1	" || true; }
	local all=("$@")
	failed=$(count fail)
	# A script's time is that of all its results.
	for t in "$@"; do cat "${t%.tsv}.times" 2>/dev/null || true; done | sort -rn | awk -F'\t' 'NR == 1 { print "the ten slowest selftests, in seconds:" }
		NR <= 10 { printf "  %7.1f  %s\n", $1, $2 }'
	say "make $target took $((seconds / 60)) min $((seconds % 60)) s; results/$target.json"
	if [ "$failed" != 0 ]; then
		echo "failed:"
		cat "$@" 2>/dev/null | sed -n 's/^fail\t\([^\t]*\).*/  \1/p'
	fi
	echo "$(count pass) passed, $failed failed, $(count skip) skipped"
	[ "$failed" = 0 ] && [ "$(count pass)" != 0 ]
}
