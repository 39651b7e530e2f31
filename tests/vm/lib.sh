# shellcheck shell=bash
# Shared by the scripts in this folder and by the Makefile's steps: messages, the cache,
# locks, stages that appear whole or not at all. Sourced, never run.

set -euo pipefail
# Builds run as an unprivileged user (in-root -u) and read files that root has made.
umask 022

ZRS_VM=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ZRS_TOP=$(cd "$ZRS_VM/../.." && pwd)
ZRS_CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/zrs
export ZRS_VM ZRS_TOP ZRS_CACHE
ZRS_T0=${ZRS_T0:-$(date +%s)}
export ZRS_T0

# One line of progress: seconds since the command started, then the text.
say() { printf 'zrs: [%4ds] %s\n' "$(($(date +%s) - ZRS_T0))" "$*"; }

# One line that says what failed and what to do about it, then out.
die() {
	printf 'zrs: error: %s\n' "$*" >&2
	exit 1
}

need_root() {
	[ "$(id -u)" = 0 ] || die "this needs root (mounts, chroot): run it with sudo or as root"
	[ "$(uname -m)" = x86_64 ] || die "this needs an x86_64 machine, this one is $(uname -m)"
}

# need_space DIR MIB WHAT: enough room, said before the work starts.
need_space() {
	local dir=$1 mib=$2 what=$3 have
	mkdir -p "$dir" || die "cannot make $dir: is the disk full or read-only?"
	have=$(df -Pm "$dir" | awk 'NR == 2 { print $4 }')
	[ "$have" -ge "$mib" ] || die "$what needs $mib MiB free in $dir, there are $have:" \
		"free some, or set XDG_CACHE_HOME to a larger disk"
}

# fetch_crates [WORKSPACE]: the crates of the lock file, into cargo's home, if they are not there. Runs nothing of them.
fetch_crates() {
	"$ZRS_VM/in-root" -C "${1:-/zrs/userspace}" cargo fetch --quiet --locked --target x86_64-unknown-linux-gnu ||
		die "cargo could not fetch the crates: its words are above; check the network"
}

# apt_install PACKAGE...: on this machine, only what is missing, each one named.
apt_install() {
	local p missing=()
	for p in "$@"; do
		dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p")
	done
	[ ${#missing[@]} = 0 ] && return 0
	command -v apt-get >/dev/null || die "no apt-get here; please install: ${missing[*]}"
	need_root
	say "installing on this machine: ${missing[*]}"
	mkdir -p "$ZRS_CACHE/log"
	local log=$ZRS_CACHE/log/apt.log
	{
		apt-get update &&
			DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"
	} >"$log" 2>&1 </dev/null || die "apt could not install ${missing[*]}:" \
		"check the network and the mirror in /etc/apt (log: $log)"
}

# stage_begin NAME HASH: takes the stage's lock, clears what dead builds left, sets $STAGE
# (where it will stand) and $TMP (where to build it). Returns 1 if it stands already.
stage_begin() {
	local name=$1 hash=$2
	STAGE=$ZRS_CACHE/$name-$hash
	[ -e "$STAGE/.whole" ] && return 1
	mkdir -p "$ZRS_CACHE/log"
	exec 9>"$ZRS_CACHE/.lock-$name"
	if ! flock -n 9; then
		say "another make is building the $name: waiting for it"
		flock 9
	fi
	[ -e "$STAGE/.whole" ] && return 1
	# Every build mounts in a separate mount namespace, so nothing is mounted in a leftover directory.
	rm -rf --one-file-system "$ZRS_CACHE/.tmp-$name-"*
	TMP=$ZRS_CACHE/.tmp-$name-$$
	mkdir -p "$TMP"
	trap stage_drop EXIT
	trap 'echo "zrs: interrupted; what was whole is kept: run the same command to go on" >&2; exit 130' INT
	trap 'exit 143' TERM
}

stage_drop() {
	local j
	# Background jobs do not get the terminal's Ctrl-C.
	for j in $(jobs -p); do kill "$j" 2>/dev/null || true; done
	wait
	rm -rf --one-file-system "$TMP"
}

# stage_end: everything is there; make it appear under its name.
stage_end() {
	touch "$TMP/.whole"
	sync -f "$TMP"
	rm -rf --one-file-system "$STAGE"
	mv -T "$TMP" "$STAGE"
	trap - EXIT
	exec 9>&-
}

# hash_of WORD-OR-FILE...: twelve digits that change with any of them.
hash_of() {
	local a
	for a in "$@"; do
		if [ -f "$a" ]; then sha256sum <"$a"; else echo "$a"; fi
	done | sha256sum | cut -c1-12
}

# The Debian mirror this machine uses, from apt's own configuration (or $ZRS_MIRROR).
# mirror Debian | mirror Debian-Security
mirror() {
	local label=$1 uri
	if [ -n "${ZRS_MIRROR:-}" ] && [ "$label" = Debian ]; then
		echo "$ZRS_MIRROR"
		return
	fi
	uri=$(apt-get indextargets --release-info --format '$(LABEL)|$(COMPONENT)|$(REPO_URI)' \
		'Identifier: Packages' | awk -F'|' -v l="$label" '$1 == l && $2 == "main" { print $3; exit }')
	echo "${uri%/}"
}

# The network options of this machine's apt, one line NAME=VALUE each.
apt_network() {
	apt-config dump | grep -iE '^Acquire::https?::(proxy|verify|ca|.*::proxy)' | sed -E 's/ "(.*)";$/=\1/' || true
}

# Where the stages of this checkout stand (or will). A recipe number is raised whenever what a
# stage makes changes otherwise than by its input files.
root_recipe=1
kernel_recipe=1
# Hash of the root file system that builds the kernels.
tools_hash() { hash_of "root $root_recipe" "$ZRS_VM/root-packages"; }
root_hash() { hash_of "$(tools_hash)" "$ZRS_VM/root-programs"; }
root_dir() { echo "$ZRS_CACHE/root-$(root_hash)/root"; }
# Roots with what only one target needs (NAME-packages): more_dir NAME.
more_recipe=1
more_hash() { hash_of "$1 $more_recipe $(root_hash)" "$ZRS_VM/$1-packages"; }
more_dir() { echo "$ZRS_CACHE/$1-$(more_hash "$1")/root"; }
# A root without anything, for make test-install.
install_recipe=1
install_hash() { hash_of "install $install_recipe" "$ZRS_VM/stage-install"; }
install_dir() { echo "$ZRS_CACHE/install-$(install_hash)/root"; }
default_series() { tr -d ' \n' <"$ZRS_VM/kernel"; }
kernel_series() { echo "${KSERIES:-$(default_series)}"; }
# The series that the module is known to build and to work with: the default and the other one.
known_series() { echo "$(default_series)" "$(tr -d ' \n' <"$ZRS_VM/kernel-other")"; }
kernel_hash() {
	hash_of "kernel $kernel_recipe $(tools_hash) $(kernel_series)" "$ZRS_VM/pick-kernel"
}
# ZRS_KERNEL says what everything goes by: stock, or a kernel that is built from its source
# (stage-debug-kernel): debug, or smc, which has SMC and is not watched.
declare -A recipes=([debug]=1 [smc]=1)
# built_config NAME: the fragments of its configuration, in this folder.
built_config() {
	case $1 in
	debug) echo debug.config ;;
	smc) echo debug.config smc.config ;;
	*) die "ZRS_KERNEL=$1: it is stock, debug or smc" ;;
	esac
}
built_hash() {
	local fragments
	fragments=$(built_config "$1") || exit
	# shellcheck disable=SC2086 # a list
	(cd "$ZRS_VM" && hash_of "$1 ${recipes[$1]} $(kernel_hash)" $fragments)
}
kernel_dir() {
	local kernel=${ZRS_KERNEL:-stock} hash
	if [ "$kernel" = stock ]; then
		echo "$ZRS_CACHE/kernel-$(kernel_hash)"
	else
		hash=$(built_hash "$kernel") || exit
		echo "$ZRS_CACHE/$kernel-$hash"
	fi
}
# Where zrs.ko for the chosen kernel is built, in the checkout.
module_out() {
	if [ "${ZRS_KERNEL:-stock}" != stock ]; then
		echo "build/module-$ZRS_KERNEL"
	elif [ "$(kernel_series)" = "$(default_series)" ]; then
		echo build/module
	else
		echo "build/module-$(kernel_series)"
	fi
}
initramfs_hash() {
	local kernel=${ZRS_KERNEL:-stock} k
	if [ "$kernel" = stock ]; then k=$(kernel_hash); else k=$(built_hash "$kernel") || exit; fi
	hash_of "$k" "$ZRS_VM/stage-initramfs" "$ZRS_VM/initramfs" "$ZRS_VM/netns-exec.c"
}
initramfs_file() { echo "$ZRS_CACHE/initramfs-$(initramfs_hash)/initramfs.gz"; }

# insns_plugin: sets "plugin" to what tests/vm/run is given so that QEMU counts the guest's instructions in
# /results/insns (tests/bench/insns.c). Empty where the processor runs them itself.
# shellcheck disable=SC2034 # the caller uses it
insns_plugin() {
	plugin=()
	case $("$ZRS_VM/accel") in *tcg*) ;; *) return 0 ;; esac
	mkdir -p "$ZRS_TOP/build/bench"
	"$ZRS_VM/in-root" gcc -Wall -Wextra -Werror -O2 -shared -fPIC -pthread -o build/bench/insns.so tests/bench/insns.c ||
		die "the plugin that counts instructions does not build, see above"
	plugin=(--qemu -plugin --qemu "/zrs/build/bench/insns.so,out=/results/insns,ranges=/results/ranges")
}
