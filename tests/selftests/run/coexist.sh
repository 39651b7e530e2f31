#!/bin/bash
# Servers on wildcard addresses under `zrs run`, asked at once from a host with ZRS, from one that has no
# RDMA device, and from their own host by 127.0.0.1, ::1 and its address; by clients under `zrs run` and by
# clients of TCP. PostgreSQL is asked where the root has it.
# rows: B14 B1
# tier: full
# hosts: own
# timeout: 240
# debug: full
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
# Host C: a wire to B, and nothing of RDMA on it.
export ADDR_C=10.79.0.2
wire=10.79.0.1
at_end "ip netns del zrsC"
ip -batch - <<-BATCH || ktap_bail "host C"
	netns add zrsC
	link add vc netns zrsC type veth peer name vd netns zrsB
BATCH
ip -n zrsC addr add "$ADDR_C/24" dev vc && ip -n zrsC link set lo up && ip -n zrsC link set vc up &&
	ip -n zrsB addr add "$wire/24" dev vd && ip -n zrsB link set vd up || ktap_bail "host C"

# Here the first link may take its time.
echo 10000 >/sys/module/zrs/parameters/fallback_ms

# opened HOST: connections that programs there have opened by TCP.
opened() { "$1" awk '/^Tcp: [0-9]/ { print $6 }' /proc/net/snmp; }

mkdir "$TMP/www"
head -c 200000 /dev/urandom >"$TMP/www/file"
cat >"$TMP/nginx.conf" <<-CONF
	daemon off;
	user root;
	worker_processes 1;
	pid $TMP/pid;
	error_log stderr notice;
	events { worker_connections 64; }
	http {
		access_log off;
		client_body_temp_path $TMP/body;
		proxy_temp_path $TMP/proxy;
		server { listen 0.0.0.0:8080; listen [::]:8080; root $TMP/www; }
	}
CONF
mkdir -p /run/sshd
ssh-keygen -q -t ed25519 -N '' -f "$TMP/host" && ssh-keygen -q -t ed25519 -N '' -f "$TMP/key" &&
	cp "$TMP/key.pub" "$TMP/allowed" || ktap_bail "ssh-keygen"
cat >"$TMP/sshd.conf" <<-CONF
	ListenAddress 0.0.0.0:2222
	ListenAddress [::]:2222
	HostKey $TMP/host
	AuthorizedKeysFile $TMP/allowed
	StrictModes no
	UsePAM no
	PermitRootLogin yes
	MaxStartups 100
	PidFile none
CONF

start nginx B "start worker process" zrs run -- /usr/sbin/nginx -e stderr -c "$TMP/nginx.conf" || ktap_bail "nginx"
start python B "Serving HTTP" zrs run -- python3 -u -m http.server -b :: -d "$TMP/www" 8081 || ktap_bail "http.server"
start redis B "Ready to accept" zrs run -- redis-server --bind 0.0.0.0 :: --protected-mode no --save '' --appendonly no ||
	ktap_bail "redis"
start sshd B "listening on :: port" zrs run -- /usr/sbin/sshd -D -e -f "$TMP/sshd.conf" || ktap_bail "sshd"
services=(nginx python redis sshd)
ask_nginx() { curl_same "$1" 8080; }
ask_python() { curl_same "$1" 8081; }
curl_same() {
	local at=$1
	[[ $at != *:* ]] || at="[$at]"
	"${with[@]}" curl -gsS --max-time $((60 * PATIENCE)) "http://$at:$2/file" | cmp - "$TMP/www/file"
}
ask_redis() {
	[ "$("${with[@]}" redis-cli -h "$1" set "key:$2" "$2"; "${with[@]}" redis-cli -h "$1" get "key:$2")" = $'OK\n'"$2" ]
}
ask_sshd() {
	local said
	said=$("${with[@]}" ssh -p 2222 -i "$TMP/key" -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null \
		-o LogLevel=ERROR "root@$1" echo "here $2")
	echo "$said"
	[ "$said" = "here $2" ]
}
PATH=$PATH:$(echo /usr/lib/postgresql/*/bin)
if command -v postgres >/dev/null; then
	chmod 755 "$TMP"
	mkdir "$TMP/db" && chown postgres: "$TMP/db"
	as_postgres=(setpriv --reuid=postgres --regid=postgres --clear-groups)
	"${as_postgres[@]}" initdb -D "$TMP/db" -A trust --no-sync --wal-segsize=1 --locale=C.UTF-8 >"$TMP/initdb" 2>&1 ||
		ktap_bail "initdb"
	echo "host all all all trust" >>"$TMP/db/pg_hba.conf"
	start postgres B "ready to accept connections" "${as_postgres[@]}" zrs run -- postgres -D "$TMP/db" \
		-c "listen_addresses=*" -c "unix_socket_directories=$TMP/db" -c fsync=off || ktap_bail "postgres"
	services+=(postgres)
	ask_postgres() { [ "$("${with[@]}" psql -h "$1" -U postgres -XAtc "select '$2'" postgres)" = "$2" ]; }
fi

before=$(opened A)
with=(/run/netns-exec zrsA zrs run --)
check "the first connection" ask_nginx "$ADDR_B"
check_eq "is carried by ZRS" "$before" "$(opened A)"
asked=() asking=()
# ask SERVICE HOST ADDRESS [zrs]: in the background; its client is under zrs run.
ask() {
	local n=${#asked[@]} with=(/run/netns-exec "zrs$2")
	[ -z "${4:-}" ] || with+=(zrs run --)
	asked+=("$1 from host $2 at $3${4:+, the client under zrs run}")
	"ask_$1" "$3" "$n" <"/dev/null" >"$TMP/asked$n" 2>&1 &
	asking+=($!)
}
for service in "${services[@]}"; do
	ask "$service" A "$ADDR_B" zrs
	ask "$service" C "$wire"
	ask "$service" C "$wire" zrs
	for at in 127.0.0.1 ::1 "$ADDR_B"; do ask "$service" B "$at"; done
	ask "$service" B ::1 zrs
	ask "$service" B "$ADDR_B" zrs
done
for n in "${!asked[@]}"; do
	rc=0
	wait "${asking[n]}" || rc=$?
	[ "$rc" = 0 ] || show "asked$n"
	check "${asked[n]}" [ "$rc" = 0 ]
done
# Where everything at once is too much for the machine, a link may not be up in time, and its host counts as one
# without ZRS for a while. Those under zrs run in host C have a reason, too.
reasons=0
for why in known no_zrs slow no_listener no_resources; do reasons=$((reasons + $(counter tcp_$why))); done
late=$((reasons - ${#services[@]} - 1))
# Those of host A: redis-cli runs twice. The link was up before, so that most are carried by it.
check "from host A at least half came by ZRS, $late by TCP" [ $((2 * late)) -le $((${#services[@]} + 1)) ]
check_eq "from host A all came by ZRS, but $late that have a reason" "$late" $(($(opened A) - before))
# redis-cli runs twice.
check_eq "from host C all came by TCP" $((2 * (${#services[@]} + 1))) "$(opened C)"
ktap_done
