#!/bin/bash
# nginx with wrk and curl, python3's http.server and asyncio, beside TCP and rsockets.
# rows: Z1 B1
# tier: full
# debug: no
# timeout: 600
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/apps.sh"

ktap_start
mkdir "$TMP/www"
head -c 50000000 /dev/zero >"$TMP/www/large"
head -c 1000 /dev/zero >"$TMP/www/small"
cat >"$TMP/nginx.conf" <<-CONF
	daemon off;
	user root;
	worker_processes 1;
	pid $TMP/pid;
	error_log stderr notice;
	events { worker_connections 512; }
	http { access_log off; sendfile on; server { listen $ADDR_B:8080; root $TMP/www; } }
CONF
cat >"$TMP/echo.py" <<-'PY'
	import asyncio, sys, time

	async def serve(reader, writer):
	    while data := await reader.read(65536):
	        writer.write(data)
	        await writer.drain()
	    writer.close()

	async def ask(host, port, rounds):
	    reader, writer = await asyncio.open_connection(host, port)
	    for _ in range(rounds):
	        writer.write(b"x" * 100)
	        await reader.readexactly(100)
	    writer.close()

	async def main():
	    host, port = sys.argv[2], int(sys.argv[3])
	    if sys.argv[1] == "serve":
	        server = await asyncio.start_server(serve, host, port)
	        print("serving", flush=True)
	        await server.serve_forever()
	    began = time.time()
	    await asyncio.gather(*(ask(host, port, 500) for _ in range(10)))
	    print(int(10 * 500 / (time.time() - began)))

	asyncio.run(main())
PY

nginx() { serve B "start worker process" "${WITH[@]}" /usr/sbin/nginx -e stderr -c "$TMP/nginx.conf"; }
# wrk_at PORT FILE: requests a second, all of them answered.
wrk_at() {
	client "${WITH[@]}" wrk -t 1 -c 16 -d 3 --timeout 20 "http://$ADDR_B:$1/$2" >"$TMP/wrk" || return
	cat "$TMP/wrk"
	! grep -E 'Non-2xx|Socket errors' "$TMP/wrk" || return
	VALUE=$(sed -n 's/^Requests.sec: *\([0-9]*\).*/\1/p' "$TMP/wrk")
	[ "$VALUE" != 0 ]
}
# curl_at PORT: MB/s of the large file.
curl_at() {
	local got
	got=$(client "${WITH[@]}" curl -sS -o "$TMP/got" -w '%{size_download} %{speed_download}' "http://$ADDR_B:$1/large") || return
	cmp "$TMP/www/large" "$TMP/got" || return
	VALUE=$(awk '{ printf "%.0f", $2 / 1e6 }' <<<"$got")
}
nginx_small() { nginx && wrk_at 8080 small; }
nginx_large() { nginx && curl_at 8080; }
http_server() { serve B "Serving HTTP" "${WITH[@]}" python3 -u -m http.server -b "$ADDR_B" -d "$TMP/www" 8030; }
python_large() { http_server && curl_at 8030; }
asyncio_echo() {
	serve B serving "${WITH[@]}" python3 "$TMP/echo.py" serve "$ADDR_B" 8031 || return
	VALUE=$(client "${WITH[@]}" python3 "$TMP/echo.py" ask "$ADDR_B" 8031)
}

program="nginx $(version "$(/usr/sbin/nginx -v 2>&1)"), wrk"
measure "$program" "1 kB file, 16 connections" req/s nginx_small
program="nginx, curl $(version "$(curl --version)")"
measure "$program" "one file of 50 MB, sendfile" MB/s nginx_large
program="python3 $(version "$(python3 --version)")"
measure "$program" "http.server: one file of 50 MB" MB/s python_large
measure "$program" "asyncio: echo of 100 B, 10 clients" req/s asyncio_echo
ktap_done
