# shellcheck shell=bash
# What the guest tells the plugin that counts its instructions (tests/bench/insns.c).

# counted_code: ranges of addresses of the code whose atomic instructions count. It is the module's, and the kernel's
# functions that stand for C's inlines in Rust, which no other code calls here. Spin locks are in neither.
counted_code() {
	local symbols pattern first last
	symbols=$(sort /proc/kallsyms | grep -E ' [tT] (rust_helper_|.*\[zrs\])')
	for pattern in 'rust_helper_' '\[zrs\]'; do
		# From the first symbol to the end of the last one's page.
		first=$(grep -m 1 "$pattern" <<<"$symbols")
		last=$(grep "$pattern" <<<"$symbols" | tail -1 | cut -d' ' -f1)
		echo "${first%% *} ${last%???}fff"
	done
}
