#!/bin/bash
# haproxy in B before nginx in A, with wrk and curl in A, over ZRS, TCP and rsockets.
# rows: Z1 B1
# tier: full
# debug: no
# timeout: 600
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/apps.sh"

ktap_start
needs haproxy
www 50
# Without this setting haproxy sets no_new_privs, and a task with no_new_privs may not have both carriers.
cat >"$TMP/haproxy.cfg" <<-CONF
	global
	    insecure-setuid-wanted
	defaults
	    mode http
	    timeout connect 5s
	    timeout client 30s
	    timeout server 30s
	listen copied
	    bind $ADDR_B:8090
	    server nginx $ADDR_A:8080
	listen spliced
	    bind $ADDR_B:8091
	    option splice-response
	    server nginx $ADDR_A:8080
CONF
proxy() {
	nginx_in A "$ADDR_A" && serve B "Loading success" "${WITH[@]}" haproxy -W -f "$TMP/haproxy.cfg"
}
small() { proxy && wrk_at "$ADDR_B:8090"; }
large() { proxy && curl_at "$ADDR_B:8090"; }
spliced() { proxy && curl_at "$ADDR_B:8091"; }
program="haproxy $(version "$(haproxy -v)")"
measure "$program" "1 kB file from nginx, 16 connections" req/s small
measure "$program" "one file of 50 MB from nginx" MB/s large
measure "$program" "the same with splice-response" MB/s spliced
ktap_done
