#!/bin/bash
# zrs-resctrl, on a mock resctrl tree: ways assigned per group, rejected inputs, and undo. The test
# needs neither the module nor a CPU that can allocate its cache.
# rows: C2 B13
# module: none
# hosts: none
# debug: no
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"

SCRIPT=$(cd "$(dirname "$0")/../../.." && pwd)/userspace/tools/zrs-resctrl
export ZRS_RESCTRL_ROOT=$TMP/resctrl ZRS_RESCTRL_SYS=$TMP/sys ZRS_RESCTRL_STATE=$TMP/state
ROOT=$ZRS_RESCTRL_ROOT

# machine MASK SHAREABLE SPARSE: two caches; resctrl's groups are folders with files in them, as in
# the kernel.
machine() {
	rm -rf "$ROOT" "$ZRS_RESCTRL_SYS" "$ZRS_RESCTRL_STATE"
	mkdir -p "$ROOT/info/L3"
	echo "$1" >"$ROOT/info/L3/cbm_mask"
	echo "$2" >"$ROOT/info/L3/shareable_bits"
	echo "$3" >"$ROOT/info/L3/sparse_masks"
	echo 1 >"$ROOT/info/L3/min_cbm_bits"
	echo "0=XXSSSSSSSSS;1=XXSSSSSSSSS" >"$ROOT/info/L3/bit_usage"
	echo ok >"$ROOT/info/last_cmd_status"
	printf '    MB:0=100;1=100\n    L3:0=%s;1=%s\n' "$1" "$1" >"$ROOT/schemata"
	: >"$ROOT/tasks"
	mkdir -p "$ZRS_RESCTRL_SYS/class/infiniband/mlx5_0/device" "$ZRS_RESCTRL_SYS/class/infiniband/rxe0"
	echo 2-3 >"$ZRS_RESCTRL_SYS/class/infiniband/mlx5_0/device/local_cpulist"
	local cpu
	for cpu in 0 1 2 3; do
		mkdir -p "$ZRS_RESCTRL_SYS/devices/system/cpu/cpu$cpu/cache/index3"
		echo $((cpu / 2)) >"$ZRS_RESCTRL_SYS/devices/system/cpu/cpu$cpu/cache/index3/id"
		echo 33792K >"$ZRS_RESCTRL_SYS/devices/system/cpu/cpu$cpu/cache/index3/size"
	done
}
# The kernel removes a group with its files.
mkdir "$TMP/bin"
# shellcheck disable=SC2016 # for the other shell
printf '#!/bin/sh\nexec rm -r "$1"\n' >"$TMP/bin/rmdir"
chmod +x "$TMP/bin/rmdir"
run() { PATH=$TMP/bin:$PATH "$SCRIPT" "$@"; }
# says NAME STATUS TEXT ARGS...
says() {
	local name=$1 status=$2 text=$3 rc=0
	shift 3
	run "$@" >"$TMP/said" 2>&1 || rc=$?
	if [ "$rc" = "$status" ] && grep -qE -e "$text" "$TMP/said"; then
		ktap_pass "$name"
	else
		sed 's/^/#   /' "$TMP/said"
		ktap_fail "$name (exit status $rc, expected $status and $text)"
	fi
}
l3() { sed -n 's/^ *L3://p' "$ROOT/$1schemata"; }
untouched() { check_eq "$1: nothing has changed" "0=7ff;1=7ff no" "$(l3 '') $([ -e "$ROOT/zrs" ] && echo yes || echo no)"; }

ktap_start
rm -rf "$ROOT"
says "no resctrl" 3 "this machine has no resctrl" --show
says "no resctrl, apply" 3 "this machine has no resctrl.*Nothing was changed" --apply
machine 7ff 600 0
rm -r "$ROOT/info/L3"
mkdir "$ROOT/info/L2"
says "a CPU without L3 allocation" 3 "cannot allocate its last-level cache" --apply
mkdir "$ROOT/info/L3CODE"
says "code apart from data" 1 "cdp" --apply

machine 7ff 600 0
says "it shows the ways" 0 "11 ways \(7ff\)" --show
check "their size" grep -qx "each way: 3072 KiB" "$TMP/said"
check "the devices'" grep -qx "devices' ways: 600, says shareable_bits" "$TMP/said"
check "and who has them" grep -q "all others  *0=7ff;1=7ff" "$TMP/said"
untouched "shown"
for bad in "" "--show --undo" "--apply --ways 0" "--apply --ways x" "--apply --ways" "--show 17" "--apply x" \
	"--apply --io-mask g" "--apply --cache a" "--apply --cache 0 --device mlx5_0" "--frobnicate"; do
	# shellcheck disable=SC2086 # a list
	says "wrong arguments: $bad" 2 "usage:" $bad
done
for bad in "--ways 1" "--ways 11" "--ways 64" "--cache 2" "--device none" "--device rxe0" "--io-mask 800" "--io-mask 60" \
	"--io-mask 0" "4194305"; do
	# shellcheck disable=SC2086 # a list
	says "refused: $bad" 1 "^zrs-resctrl: " --apply $bad
done
untouched "refused"
if [ "$(id -u)" = 0 ]; then
	chmod 755 "$TMP"
	check_fails "not root" "needs root" setpriv --reuid 65534 --regid 65534 --clear-groups "$SCRIPT" --apply
	check_fails "not root, undo" "needs root" setpriv --reuid 65534 --regid 65534 --clear-groups "$SCRIPT" --undo
	check "anybody may look" setpriv --reuid 65534 --regid 65534 --clear-groups "$SCRIPT" --show
fi

check "the devices' ways are kept free" run --apply
check_eq "for the group" "0=600;1=600" "$(l3 zrs/)"
check_eq "for all others" "0=1ff;1=1ff" "$(l3 '')"
check "a share for two processes" run --apply --ways 5 $$ "$PPID"
check_eq "the ways beside the devices'" "0=7c0;1=7c0" "$(l3 zrs/)"
check_eq "others have the rest" "0=3f;1=3f" "$(l3 '')"
check "both are in the group" sh -c "grep -qx $$ '$ROOT/zrs/tasks' && grep -qx $PPID '$ROOT/zrs/tasks'"
says "it shows the group" 0 "zrs  *0=7c0;1=7c0 \([0-9]+ tasks\)" --show
check "undone" run --undo
untouched "undone"
says "nothing is left to undo" 0 "nothing to undo" --undo

machine 7ff 600 0
check "only the cache of a device" run --apply --ways 3 --device mlx5_0
check_eq "for the group" "0=7ff;1=700" "$(l3 zrs/)"
check_eq "for all others" "0=7ff;1=ff" "$(l3 '')"
check "then only the other one" run --apply --cache 0
check_eq "the first has what it had before" "0=600;1=7ff 0=1ff;1=7ff" "$(l3 zrs/) $(l3 '')"
rm "$ZRS_RESCTRL_STATE"
says "what others had is lost" 1 "not known" --undo

machine fff 3 0
check "devices at the lower end" run --apply --ways 4
check_eq "the group grows upwards" "0=f;1=f fff0" "$(l3 zrs/) $(l3 '' | sed 's/.*=/f/')"
machine 7ff 0 0
says "a machine that does not say" 1 "give --io-mask" --apply
check "it is told" run --apply --io-mask 0x600
check_eq "it is believed" "0=600;1=600" "$(l3 zrs/)"
machine ffff 0 1
echo enabled >"$ROOT/info/L3/io_alloc"
echo "0=00f0;1=0030" >"$ROOT/info/L3/io_alloc_cbm"
check "ways that are set for devices, in the middle" run --apply
check_eq "of all caches together" "0=f0;1=f0 0=ff0f;1=ff0f" "$(l3 zrs/) $(l3 '')"
ktap_done
