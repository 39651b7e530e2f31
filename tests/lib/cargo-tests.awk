# Reads cargo test's output (both streams) and prints a line a test: verdict, name, rows, seconds.
function record(verdict, name) { printf "%s\t%s\t\t0\n", verdict, "host: " crate name }
BEGIN { crate = "" }
/^ *Running / {
	crate = $0
	sub(/.*deps\//, "", crate)
	sub(/-[0-9a-f]*\).*/, "", crate)
	crate = crate "::"
}
/^ *Doc-tests / { crate = $2 " doc: " }
/^test .* \.\.\. ok$/ { n = $0; sub(/^test /, "", n); sub(/ \.\.\. ok$/, "", n); record("pass", n); seen++ }
/^test .* \.\.\. FAILED$/ { n = $0; sub(/^test /, "", n); sub(/ \.\.\. FAILED$/, "", n); record("fail", n); seen++ }
/^test .* \.\.\. ignored/ { n = $0; sub(/^test /, "", n); sub(/ \.\.\. ignored.*$/, "", n); record("skip", n); seen++ }
