#!/bin/bash
# nodejs: its http server with wrk and curl, and with its own client; over ZRS, TCP and rsockets.
# rows: Z1 B1
# tier: full
# debug: no
# timeout: 600
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/apps.sh"

ktap_start
needs nodejs
www 10
cat >"$TMP/serve.js" <<-'JS'
	const http = require('http'), fs = require('fs'), crypto = require('crypto');
	const [dir, host, port] = process.argv.slice(2);
	const small = fs.readFileSync(dir + '/small');
	http.createServer((asked, answer) => {
	    if (asked.method === 'POST') {
	        const hash = crypto.createHash('sha256');
	        asked.on('data', data => hash.update(data)).on('end', () => answer.end(hash.digest('hex')));
	    } else if (asked.url === '/small') {
	        answer.end(small);
	    } else {
	        fs.createReadStream(dir + asked.url).pipe(answer);
	    }
	}).listen(port, host, () => console.log('serving'));
JS
# Posts a file; prints its rate, and the hash that the server found.
cat >"$TMP/post.js" <<-'JS'
	const http = require('http'), fs = require('fs');
	const [file, host, port] = process.argv.slice(2);
	const length = fs.statSync(file).size, began = Date.now();
	const asked = http.request({ host, port, method: 'POST', headers: { 'Content-Length': length } }, answer => {
	    let hash = '';
	    answer.on('data', data => hash += data).on('end', () =>
	        console.log(Math.round(length / 1e3 / (Date.now() - began)), hash));
	});
	fs.createReadStream(file).pipe(asked);
JS
server() { serve B serving "${WITH[@]}" nodejs "$TMP/serve.js" "$TMP/www" "$ADDR_B" 8040; }
# Its compiler needs some seconds, which do not count.
small() { server && wrk_at "$ADDR_B:8040" && wrk_at "$ADDR_B:8040"; }
large() { server && curl_at "$ADDR_B:8040"; }
SUM=$(sha256sum <"$TMP/www/large")
post() {
	local rate sum
	server && client "${WITH[@]}" nodejs "$TMP/post.js" "$TMP/www/large" "$ADDR_B" 8040 >"$TMP/posted" || return
	read -r rate sum <"$TMP/posted"
	[ "$sum" = "${SUM%% *}" ] && value "$rate"
}
program="nodejs $(version "$(nodejs --version)")"
measure "$program, wrk" "http: 1 kB, 16 connections" req/s small
measure "$program, curl" "http: one file of 10 MB" MB/s large
measure "$program" "http: POST of 10 MB" MB/s post
ktap_done
