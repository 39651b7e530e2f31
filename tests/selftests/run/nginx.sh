#!/bin/bash
# nginx with curl and wrk under `zrs run`: sendfile, ranges, and an upstream on loopback, which
# stays TCP.
# hosts: own
# rows: Z1 B1
# timeout: 120
# debug: full
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
# tcp HOST: connections that programs there have opened by TCP.
tcp() { "$1" awk '/^Tcp: [0-9]/ { print $6 }' /proc/net/snmp; }
get() { A zrs run --tcp=never -- curl -sS --max-time $((20 * PATIENCE)) "$@"; }

mkdir "$TMP/www"
head -c 8000000 /dev/urandom >"$TMP/www/large"
head -c 1000 /dev/urandom >"$TMP/www/small"
head -c 200000 /dev/urandom >"$TMP/www/medium"
cat >"$TMP/nginx.conf" <<-CONF
	daemon off;
	user root;
	worker_processes 2;
	pid $TMP/pid;
	error_log stderr notice;
	events { worker_connections 512; }
	http {
		access_log off;
		sendfile on;
		client_body_temp_path $TMP/body;
		proxy_temp_path $TMP/proxy;
		client_max_body_size 20m;
		server {
			listen $ADDR_B:8080 reuseport;
			root $TMP/www;
			location /up/ { proxy_pass http://127.0.0.1:8081/; proxy_buffering off; }
		}
		server {
			listen 127.0.0.1:8081;
			root $TMP/www;
		}
	}
CONF
start nginx B "start worker process" zrs run --tcp=never -- nginx -e stderr -c "$TMP/nginx.conf" || ktap_bail "nginx"
check "it listens with ZRS" bash -c "ip netns exec zrsB zrs ss -l | grep -E '^LISTEN .*$ADDR_B:8080'"
of_zrs() { B zrs ss -l --json | jq -e 'any(.[]; (.local | endswith(":8081")) and .carrier != "tcp")' >/dev/null; }
check "but not on loopback" eval '! of_zrs'
for file in small large; do
	check "curl: the $file file" get -o "$TMP/got" "http://$ADDR_B:8080/$file"
	check "it is the same" cmp "$TMP/www/$file" "$TMP/got"
done
get -r 1000000-2999999 -o "$TMP/got" "http://$ADDR_B:8080/large"
check "a range" cmp -n 2000000 "$TMP/got" <(tail -c +1000001 "$TMP/www/large")
check_eq "404" 404 "$(get -o /dev/null -w '%{http_code}' "http://$ADDR_B:8080/none")"
check_eq "four files over one connection" 1 "$(
	get -o /dev/null -o /dev/null -o /dev/null -o /dev/null -w '%{num_connects}\n' \
		"http://$ADDR_B:8080/small" "http://$ADDR_B:8080/large" "http://$ADDR_B:8080/small" \
		"http://$ADDR_B:8080/large" | awk '{ n += $1 } END { print n }'
)"
check "from the upstream" get -o "$TMP/got" "http://$ADDR_B:8080/up/large"
check "it is the same" cmp "$TMP/www/large" "$TMP/got"
check "loopback is reached without ZRS" B curl -sS -o "$TMP/got" "http://127.0.0.1:8081/small"

# wrk FILE: no request fails.
load() {
	check "wrk: the $1 file" A zrs run --tcp=never -- wrk -t 2 -c 16 -d 2 --timeout $((20 * PATIENCE)) "http://$ADDR_B:8080/$1"
	mv "$TMP/out" "$TMP/wrk"
	check "some were answered" grep -E "^ +[1-9][0-9]* requests in" "$TMP/wrk"
	check_eq "and none otherwise than by 200" "" "$(grep -E 'Non-2xx|Socket errors' "$TMP/wrk")"
}
load small
load medium
check_eq "no connection by TCP" 0 "$(tcp A)"
kill -QUIT "${PID[nginx]}"
check_ended "nginx ends" nginx
ktap_done
