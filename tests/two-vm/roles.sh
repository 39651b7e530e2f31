#!/bin/bash
# Memory nodes of three machines: that of the source, of the target and of the requester each lose their power in the middle
# of copies, puts, gets, allocations and frees. Waiting calls get an error in time, the other two machines go on
# with each other, what the lost one had asked for can be freed at once, and when it is back all copies work.
# rows: M2 M3 M4 M5 B12
# machines: 3
# params: connect_timeout_ms=4000 ack_timeout_ms=500 retry_count=6
# timeout: 600
. "$(dirname "$0")/../lib/ktap.sh"
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/../lib/machines.sh"

declare -A NODE=([A]=1:1 [B]=1:2 [C]=1:3)
# The guests' shells expand these.
# shellcheck disable=SC2016
READS='while zrs mem get "$1" /tmp/read; do echo reading; done; echo ended'
# shellcheck disable=SC2016
CHURN='while r=$(zrs mem alloc "$1" 64K) && zrs mem free "$r"; do echo churning; done; echo ended'

# roles REQUESTER SOURCE TARGET: the requester has the source copy to the target, which is written and read by the source
# besides; it reads the source's, and allocates and frees at both.
roles() {
	asks=$1 source=$2 target=$3
	from=$(region "$asks" "${NODE[$source]}") && to=$(region "$asks" "${NODE[$target]}") &&
		to2=$(region "$source" "${NODE[$target]}") || ktap_bail "regions"
	copier copier "$asks" "$from" "$to" && writer "$source" "$to2" &&
		start reader "$asks" reading sh -c "$READS" - "$from" &&
		start churnS "$asks" churning sh -c "$CHURN" - "${NODE[$source]}" &&
		start churnT "$asks" churning sh -c "$CHURN" - "${NODE[$target]}" || ktap_bail "traffic"
}
# beside HOST OTHER: copies between the two machines that stay.
beside() {
	own=$(region "$1" "${NODE[$1]}") && other=$(region "$1" "${NODE[$2]}") || ktap_bail "regions"
	copier beside "$1" "$own" "$other" || ktap_bail "copies beside"
}
# freed HOST REGION...: that host frees them.
freed() {
	local host=$1 region
	shift
	for region; do "$host" zrs mem free "$region" || return 1; done
}
# back HOST: it boots, and serves its node.
back() {
	check "$1 boots" vm_up "$1"
	"$1" zrs_load connect_timeout_ms=4000 ack_timeout_ms=500 retry_count=6
	serve "$1" "${NODE[$1]}" || ktap_bail "$1's node"
}
# copied REQUESTER SOURCE TARGET: a copy works.
copied() {
	local one two rc=1
	one=$(region "$1" "${NODE[$2]}") && two=$(region "$1" "${NODE[$3]}") &&
		"$1" sh -c 'head -c 2097152 /dev/urandom >/tmp/put && zrs mem put /tmp/put "$1" && zrs mem cp "$1" "$2" &&
			zrs mem get "$2" /tmp/got && cmp /tmp/put /tmp/got' - "$one" "$two" && rc=0
	freed "$1" "$one" "$two"
	return $rc
}

ktap_start
for h in A B C; do serve "$h" "${NODE[$h]}" || ktap_bail "a node in each machine"; done

# A's QEMU joins the others' wires, and so stays.
roles A B C
beside A C
vm_kill B
lost copier "the source's machine is gone: the copy ends"
check_ended "and who reads it" reader $BOUND
check_ended "and who allocates there" churnS $BOUND
check "copies beside go on" goes_on beside
check "so do allocations at the target" sh -c 'n=$(grep -c churning "$1"); sleep 20; [ "$(grep -c churning "$1")" -gt "$n" ]' - "$TMP/churnT"
check "what the source wrote to can be freed" freed A "$to2"
check "and the copies' target" freed A "$to"
stop churnT
stop beside
check "and the others' regions" freed A "$other" "$own"
back B
check_within "and copies work again" 30 copied A B C

roles A B C
beside A B
vm_kill C
lost copier "the target's machine is gone: the copy ends"
check "and who writes it" writer_lost
check_ended "and who allocates there" churnT $BOUND
check "copies beside go on" goes_on beside
check "who reads the source reads on" sh -c 'n=$(grep -c reading "$1"); sleep 20; [ "$(grep -c reading "$1")" -gt "$n" ]' - "$TMP/reader"
stop reader
stop churnS
stop beside
check "the source can be freed" freed A "$from"
check "and the others' regions" freed A "$other" "$own"
back C
check_within "and copies work again" 30 copied A B C

roles C A B
beside A B
vm_kill C
check "the requester's machine is gone: copies beside go on" goes_on beside
check "and the source's writes" sh -c '! grep after "$1"' - "$TMP/writer"
check "its target can be freed at once" freed B "$to"
check "and its source" freed A "$from"
stop writer
stop beside
check "and the others' regions" freed A "$to2" "$own" "$other"
back C
check_within "and copies work again" 30 copied C A B
for h in A B C; do stop "node$h" TERM; done
ktap_done
