#!/bin/bash
# PostgreSQL with pgbench and psql, over ZRS, TCP and rsockets.
# rows: Z1 B1
# tier: full
# debug: no
# timeout: 600
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/apps.sh"

ktap_start
PATH=$PATH:$(echo /usr/lib/postgresql/*/bin)
needs postgres
chmod 755 "$TMP"
mkdir "$TMP/db" && chown postgres: "$TMP/db"
as_postgres() { setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; }
chmod 666 /dev/infiniband/* # for rsockets
as_postgres initdb -D "$TMP/db" -A trust --no-sync --wal-segsize=1 --locale=C.UTF-8 >"$TMP/initdb" 2>&1 || {
	show initdb
	ktap_bail "initdb"
}
echo "host all all $ADDR_A/32 trust" >>"$TMP/db/pg_hba.conf"
cat >>"$TMP/db/postgresql.conf" <<-CONF
	listen_addresses = '$ADDR_B'
	unix_socket_directories = '$TMP/db'
	fsync = off
	log_checkpoints = off
CONF
server() {
	serve B "ready to accept connections" setpriv --reuid=postgres --regid=postgres --clear-groups "${WITH[@]}" \
		postgres -D "$TMP/db"
}
# pg PROGRAM ARGS...: one of its clients.
pg() { client "${WITH[@]}" "$1" -h "$ADDR_B" -U postgres "${@:2}" postgres; }
ask() { pg psql -XAtc "$1"; }
# bench ARGS...: transactions a second; none may fail.
bench() {
	pg pgbench -c 8 -j 2 -T 4 "$@" >"$TMP/bench" 2>&1 || { cat "$TMP/bench"; return 1; }
	cat "$TMP/bench"
	grep -q '^number of failed transactions: 0 ' "$TMP/bench" || return
	value "$(sed -n 's/^tps = \([0-9]*\).*/\1/p' "$TMP/bench")"
}
# The tables are made through the carrier too. After the transactions all sums are the same, and
# each one is there.
tpcb() {
	server && pg pgbench -q -i || return
	bench || return
	local sums total
	total=$(sed -n 's/^number of transactions actually processed: //p' "$TMP/bench")
	sums=$(ask "select (select count(*) from pgbench_history), (select sum(abalance) from pgbench_accounts)
		- (select sum(delta) from pgbench_history), (select sum(bbalance) from pgbench_branches)
		- (select sum(delta) from pgbench_history)")
	echo "$total transactions: $sums"
	[ "$sums" = "$total|0|0" ]
}
selects() { server && bench -S; }
seq 1 1000000 >"$TMP/numbers"
# In and out of a table by COPY.
copy() {
	local began
	server && ask "create table if not exists numbers (n int); truncate numbers" || return
	began=$EPOCHREALTIME
	ask "copy numbers from stdin" <"$TMP/numbers" && ask "copy numbers to stdout" >"$TMP/copied" || return
	value "$(awk -v a="$began" -v b="$EPOCHREALTIME" -v n="$(stat -c %s "$TMP/numbers")" \
		'BEGIN { printf "%.1f", 2 * n / 1e6 / (b - a) }')"
	cmp "$TMP/numbers" "$TMP/copied"
}
program="postgresql $(version "$(postgres --version)")"
measure "$program, pgbench" "TPC-B, 8 clients" trans/s tpcb
measure "$program, pgbench" "SELECT, 8 clients" trans/s selects
measure "$program, psql" "COPY of 7 MB, in and out" MB/s copy
ktap_done
