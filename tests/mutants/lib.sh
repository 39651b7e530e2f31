# shellcheck shell=bash
# Reads the heads of the patches in this folder. A patch begins with
#
#   # What the fault is, in one line.
#   # rows: E3                     the requirements that it breaks
#   # kills: events/busypoll       a selftest that must fail; or, for a host test of the core,
#   # kills: host zrs-core::runs   "lib" or a file of tests/core/tests, and maybe a test in it:
#   # kills: host zrs-core::lib::neighbours_merge
#   # kernel: debug                the selftests run on the debug kernel (default: stock)
#   # device: strict               the selftests run as with DEVICE=strict (tests/vm/devices)
#   # by: REGEX                    only such checks count. Without it all checks that the test makes itself
#                                  count, and none of the runner's (a time limit, the kernel log, what is left)
#
# There may be several "kills": each of them must fail. Sourced after tests/vm/lib.sh.

# patches: the patches that ONLY chooses: those with one of its words in their names.
patches() {
	local f text
	for f in "$ZRS_TOP"/tests/mutants/*.patch; do
		for text in ${ONLY:-.patch}; do
			case ${f##*/} in *"$text"*) echo "$f"; break ;; esac
		done
	done
}
# note PATCH KEY: the values of its "# key: value" lines.
note() { sed -n "/^[-d]/q; s/^# $2: *//p" "$1"; }
# fault PATCH: its description.
fault() { sed -n '1s/^# *//p' "$1"; }
# kernel_of PATCH
kernel_of() {
	local k
	k=$(note "$1" kernel)
	echo "${k:-stock}"
}
# device_of PATCH: nothing for Soft-RoCE as it is.
device_of() { note "$1" device; }
# selftests_of PATCH, host_of PATCH: the tests that it names; those of the host as TARGET[::TEST].
selftests_of() { note "$1" kills | grep -v '^host ' || true; }
host_of() { note "$1" kills | sed -n 's/^host zrs-core:://p'; }
