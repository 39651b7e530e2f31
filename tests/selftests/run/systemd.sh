#!/bin/bash
# A service of systemd with the drop-in that makes its sockets ZRS sockets: systemd is the first process of a
# container in host B, with the unit that loads the BPF program.
# rows: B15 B1
# tier: full
# debug: no
# timeout: 180
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/systemd.sh"

ktap_start
mountpoint -q /sys/fs/bpf || {
	mount -t bpf bpf /sys/fs/bpf || ktap_bail "bpffs"
	at_end "umount /sys/fs/bpf"
}
at_end "zrs bpf unload"
units=$TMP/units
mkdir -p "$units"/{web,zrs-bpf}.service.d
cp /zrs/packaging/files/zrs-bpf.service "$units/"
cp /zrs/packaging/files/unit.conf "$units/web.service.d/zrs.conf"
# Without those of a whole system: the disks, the journal.
printf '[Unit]\nDefaultDependencies=no\n' >"$units/zrs-bpf.service.d/test.conf"
cat >"$units/web.service" <<-UNIT
	[Unit]
	DefaultDependencies=no
	[Service]
	ExecStart=/usr/bin/python3 -m http.server -b $ADDR_B 7900
UNIT
cat >"$units/plain.service" <<-UNIT
	[Unit]
	DefaultDependencies=no
	[Service]
	ExecStart=/usr/bin/python3 -m http.server -b $ADDR_B 7901
UNIT
cat >"$units/test.target" <<-UNIT
	[Unit]
	DefaultDependencies=no
	Wants=web.service plain.service
UNIT
systemd_up B "$units"
# listens: a ZRS socket does, where the service has its port.
listens() { B zrs ss -l --json | jq -e 'any(.[]; .local | endswith(":7900"))' >/dev/null; }
check "a unit with the drop-in listens with ZRS" within listens
chosen() { inside zrs bpf show --json | jq '.cgroups | length'; }
check_eq "the program is loaded, and has the unit's control group" 1 "$(chosen)"
check_eq "a ZRS client reaches it" "<!DOCTYPE HTML>" \
	"$(A zrs run --tcp=never -- curl -s --max-time $((20 * PATIENCE)) "http://$ADDR_B:7900/" | head -1)"
plain() { A curl -s --max-time 5 "http://$ADDR_B:7901/" | grep -q HTML; }
check "a unit without it is TCP" within plain
check "and no other socket listens with ZRS" bash -c "! /run/netns-exec zrsB zrs ss -l | grep 7901"
check "it restarts" inside systemctl restart web.service
check "with ZRS again" within listens
check "it stops" inside systemctl stop web.service
check_eq "then the program does not have it any more" 0 "$(chosen)"
check "zrs-bpf.service stops" inside systemctl stop zrs-bpf.service
check_eq "then the program is not loaded" "not loaded" "$(zrs bpf show)"
stop systemd
ktap_done
