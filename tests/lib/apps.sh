# shellcheck shell=bash
# For the selftests of the area apps: the same program on TCP, on rsockets' preload, on ZRS alone, and
# in mode AUTO, the default of `zrs run`.
# Sourced after tests/selftests/lib.sh.

# measure PROGRAM WHAT UNIT FUNCTION: FUNCTION starts servers by `serve`, runs a client in A by
# `client`, all with the words of WITH in front, fails if the answers are not right, and gives a
# number to `value`. That it does so on ZRS, and by no TCP connection, is a result, for ZRS alone and
# for mode AUTO; the values of the four are a line of /results/apps.tsv. rsockets cannot run all of
# them, and uses TCP where it cannot connect ("by-tcp").
WITH=() VALUE=
FALLBACK_MS=/sys/module/zrs/parameters/fallback_ms
measure() {
	local program=$1 what=$2 unit=$3 fn=$4 carrier values=() opened sent why wait
	wait=$(cat $FALLBACK_MS)
	for carrier in tcp rsockets zrs auto; do
		# shellcheck disable=SC2034 # for FUNCTION
		case $carrier in
		tcp) WITH=() ;;
		rsockets) WITH=(env LD_PRELOAD=/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so) ;;
		zrs) WITH=(zrs run --tcp=never --) ;;
		# No connection may become TCP because the machine is slow.
		auto) WITH=(zrs run --) && echo 20000 >$FALLBACK_MS ;;
		esac
		VALUE='' why=''
		opened=$(tcp_opened) sent=$(counter tx_bytes)
		"$fn" >"$TMP/app" 2>&1 || VALUE=
		[[ $VALUE =~ ^[0-9.]+$ ]] || VALUE=fails
		opened=$(($(tcp_opened) - opened)) sent=$(($(counter tx_bytes) - sent))
		case $carrier in
		tcp) [ "$opened" != 0 ] && [ "$sent" = 0 ] || why="no TCP connection is seen" ;;
		rsockets) [ "$opened" = 0 ] || [ "$VALUE" = fails ] || VALUE=by-tcp ;;
		zrs | auto) [ "$opened" = 0 ] && [ "$sent" != 0 ] || why="$opened TCP connections, $sent bytes sent by ZRS" ;;
		esac
		[ "$VALUE" != fails ] || why="does not work${why:+, $why}"
		if [ -n "$why" ]; then
			sed 's/^/#   /' "$TMP/app" | tail -12
			if [ "$carrier" = rsockets ]; then
				ktap_say "$program: $what: $carrier: $why"
			else
				ktap_fail "$program: $what: $carrier: $why"
			fi
		elif [ "$carrier" = zrs ]; then
			ktap_pass "$program: $what: $VALUE $unit"
		elif [ "$carrier" = auto ]; then
			ktap_pass "$program: $what: $VALUE $unit in mode AUTO"
		fi
		values+=("$VALUE")
		served
	done
	echo "$wait" >$FALLBACK_MS
	printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$program" "$what" "$unit" "${values[@]}" >>/results/apps.tsv
}

# needs PROGRAM: in a root without it (it is in that of make test-apps) the test ends here, and
# counts as skipped.
needs() {
	command -v "$1" >/dev/null && return
	ktap_skip "$1" "the root does not have it: make test-apps"
	ktap_done
}

# tcp_opened: connections that programs in A and B have opened by TCP.
tcp_opened() {
	local host n=0
	for host in A B; do n=$((n + $("$host" awk '/^Tcp: [0-9]/ { print $6 }' /proc/net/snmp))); done
	echo "$n"
}

value() { VALUE=$1; }

SERVERS=()
# serve HOST TEXT CMD...: as start; ended when the measurement is over. Without TEXT it gets a
# second.
serve() {
	local name=server${#SERVERS[@]} host=$1 text=$2
	shift 2
	SERVERS+=("$name")
	start "$name" "$host" "$text" "$@" || return 1
	[ -n "$text" ] || nap "$SCALE"
	return 0
}
served() {
	local name
	for name in "${SERVERS[@]}"; do kill "${PID[$name]}" 2>/dev/null; done
	for name in "${SERVERS[@]}"; do
		ended "$name" 5
		[ $? != 124 ] || stop "$name"
	done
	SERVERS=()
}

# client CMD...: in A, for two minutes at most. (With rsockets some wait for ever.)
client() {
	local limit=120
	[[ ${WITH[*]} != *rspreload* ]] || limit=20
	A timeout -k 2 $((limit * SCALE)) "$@"
}

# version TEXT: the first thing in it that looks like one.
version() { grep -oE '[0-9]+\.[0-9]+(\.[0-9]+)?(p[0-9]+)?' <<<"$1" | head -1; }

# www MB: for servers of files by HTTP, $TMP/www has a "small" of 1 kB and a "large" of that size.
www() {
	mkdir "$TMP/www"
	head -c "${1}000000" /dev/urandom >"$TMP/www/large"
	head -c 1000 /dev/urandom >"$TMP/www/small"
}
# curl_at HOST:PORT [FILE]: MB/s of the large file; it is the same.
curl_at() {
	local got file=${2:-large}
	got=$(client "${WITH[@]}" curl -gsS -o "$TMP/got" -w '%{size_download} %{speed_download}' "http://$1/$file") || return
	cmp "$TMP/www/$file" "$TMP/got" || return
	value "$(awk '{ printf "%.0f", $2 / 1e6 }' <<<"$got")"
}
# wrk_at HOST:PORT [CONNECTIONS]: requests a second for the small file; all are answered, and
# rightly.
wrk_at() {
	curl_at "$1" small || return
	client "${WITH[@]}" wrk -t 1 -c "${2:-16}" -d 3 --timeout 20 "http://$1/small" >"$TMP/wrk" || return
	cat "$TMP/wrk"
	! grep -E 'Non-2xx|Socket errors' "$TMP/wrk" || return
	value "$(sed -n 's/^Requests.sec: *\([0-9]*\).*/\1/p' "$TMP/wrk")"
	[ "$VALUE" != 0 ]
}
# nginx_in HOST ADDRESS...: nginx serves them at port 8080.
nginx_in() {
	local host=$1 address
	shift
	{
		cat <<-CONF
			daemon off;
			user root;
			worker_processes 1;
			pid $TMP/pid;
			error_log stderr notice;
			events { worker_connections 512; }
		CONF
		echo "http { access_log off; sendfile on; server { root $TMP/www;"
		for address in "$@"; do echo "listen $address:8080;"; done
		echo "} }"
	} >"$TMP/nginx.conf"
	serve "$host" "start worker process" "${WITH[@]}" /usr/sbin/nginx -e stderr -c "$TMP/nginx.conf"
}
