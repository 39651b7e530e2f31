#!/bin/bash
# zrs-mem@.service under systemd: a node that is started again, or whose daemon dies, keeps its regions by the descriptor
# store; one that is stopped does not.
# rows: M5
# hosts: none
# tier: full
# debug: no
# timeout: 240
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/memnode.sh"
. "$(dirname "$0")/../../lib/systemd.sh"

ktap_start
nodes_up || ktap_bail "three hosts and two nodes"
for h in A B C; do $h zrs mem nodes add 1:6 "$ADDR_C"; done
units=$TMP/units
mkdir -p "$units/zrs-mem@.service.d"
cp /zrs/packaging/files/zrs-mem@.service "$units/"
# Without those of a whole system: the disks, the journal; the module is there.
printf '[Unit]\nDefaultDependencies=no\n' >"$units/zrs-mem@.service.d/test.conf"
printf '[Unit]\nDefaultDependencies=no\n[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n' >"$units/zrs.service"
printf '[Unit]\nDefaultDependencies=no\nWants=zrs-mem@six.service\n' >"$units/test.target"
mkdir -p /etc/zrs/mem
echo 'OPTIONS=--node 1:6 --size 2M --open' >/etc/zrs/mem/six
at_end "rm /etc/zrs/mem/six"
systemd_up C "$units"

unit=zrs-mem@six.service
# of PROPERTY: what systemd says of the unit.
of() { inside systemctl show --value -p "$1" $unit; }
active() { [ "$(of ActiveState 2>/dev/null)" = active ]; }
check "the unit starts, and says when it serves" within active
head -c 300001 /dev/urandom >"$TMP/file"
want=$(sum "$TMP/file")
r=$(A zrs mem put "$TMP/file" 1:6) || ktap_bail "put"
check_eq "the node is in the descriptor store" 1 "$(of NFileDescriptorStore)"
first=$(of MainPID)
check "it is started again" inside systemctl restart $unit
check "by another process" [ "$(of MainPID)" != "$first" ]
check_eq "the region is there" "$want" "$(A zrs mem get "$r" "$TMP/back" && sum "$TMP/back")"
again() { [ "$(of NRestarts)" = 1 ] && active; }
inside systemctl kill --signal=KILL $unit
check "its daemon is killed, and comes back" within again
check_eq "the region is there, too" "$want" "$(A zrs mem get "$r" "$TMP/back" && sum "$TMP/back")"
check "and others can be made" A zrs mem alloc 1:6 4096 --ttl 1000
check "it stops" inside systemctl stop $unit
check_eq "then nothing is stored" 0 "$(of NFileDescriptorStore)"
check_fails "and the node is gone" "no host serves this node|serves no memory" A zrs mem get "$r" "$TMP/back"
check "it starts anew" inside systemctl start $unit
check_fails "without the region" "." A zrs mem get "$r" "$TMP/back"
check "and serves" A zrs mem put "$TMP/file" 1:6
stop systemd
ktap_done
