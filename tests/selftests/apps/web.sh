#!/bin/bash
# nginx with wrk and curl, by IPv4 and IPv6, python3's http.server and asyncio, over ZRS, TCP and
# rsockets.
# rows: Z1 B1 B6
# tier: full
# debug: no
# timeout: 600
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/apps.sh"

ktap_start
www 50
cat >"$TMP/echo.py" <<-'PY'
	import asyncio, sys, time

	async def serve(reader, writer):
	    while data := await reader.read(65536):
	        writer.write(data)
	        await writer.drain()
	    writer.close()

	async def ask(host, port, rounds):
	    reader, writer = await asyncio.open_connection(host, port)
	    for n in range(rounds):
	        data = b"%0100d" % n
	        writer.write(data)
	        assert await reader.readexactly(100) == data
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

nginx_small() { nginx_in B "$ADDR_B" && wrk_at "$ADDR_B:8080"; }
nginx_large() { nginx_in B "$ADDR_B" && curl_at "$ADDR_B:8080"; }
nginx_small6() { nginx_in B "[$ADDR6_B]" && wrk_at "[$ADDR6_B]:8080"; }
nginx_large6() { nginx_in B "[$ADDR6_B]" && curl_at "[$ADDR6_B]:8080"; }
http_server() { serve B "Serving HTTP" "${WITH[@]}" python3 -u -m http.server -b "$ADDR_B" -d "$TMP/www" 8030; }
python_large() { http_server && curl_at "$ADDR_B:8030"; }
python_small() { http_server && wrk_at "$ADDR_B:8030" 4; } # its backlog is 5
asyncio_echo() {
	serve B serving "${WITH[@]}" python3 "$TMP/echo.py" serve "$ADDR_B" 8031 || return
	value "$(client "${WITH[@]}" python3 "$TMP/echo.py" ask "$ADDR_B" 8031)"
}

program="nginx $(version "$(/usr/sbin/nginx -v 2>&1)"), wrk"
measure "$program" "1 kB file, 16 connections" req/s nginx_small
measure "$program" "1 kB file, 16 connections, IPv6" req/s nginx_small6
program="nginx, curl $(version "$(curl --version)")"
measure "$program" "one file of 50 MB, sendfile" MB/s nginx_large
measure "$program" "one file of 50 MB, sendfile, IPv6" MB/s nginx_large6
program="python3 $(version "$(python3 --version)")"
measure "$program" "http.server: 1 kB file, 4 connections" req/s python_small
measure "$program" "http.server: one file of 50 MB" MB/s python_large
measure "$program" "asyncio: echo of 100 B, 10 clients" req/s asyncio_echo
ktap_done
