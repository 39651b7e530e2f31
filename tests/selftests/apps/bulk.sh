#!/bin/bash
# iperf3, netcat, socat and scp move bytes, over ZRS, TCP and rsockets.
# rows: Z1 B1
# tier: full
# debug: no
# timeout: 600
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/apps.sh"

ktap_start
head -c 50000000 /dev/urandom >"$TMP/file"
head -c 8000000 /dev/urandom >"$TMP/secret"
# arrived FILE: the receiver in B has written all of it to $TMP/got, since $began.
arrived() {
	local _ size
	size=$(stat -c %s "$1")
	for _ in $(seq 1 $((150 * PATIENCE))); do
		[ "$(stat -c %s "$TMP/got")" = "$size" ] && break
		nap 0.02
	done
	value "$(awk -v a="$began" -v b="$EPOCHREALTIME" -v n="$size" 'BEGIN { printf "%.1f", n / 1e6 / (b - a) }')"
	cmp "$1" "$TMP/got"
}
iperf() {
	serve B "Server listening" "${WITH[@]}" iperf3 -s -B "$ADDR_B" --forceflush || return
	client "${WITH[@]}" iperf3 -c "$ADDR_B" -t 3 -J >"$TMP/json" || { cat "$TMP/json"; return 1; }
	value "$(jq '.end.sum_received.bits_per_second / 8e6 | floor' "$TMP/json")"
}
netcat() {
	: >"$TMP/got"
	# shellcheck disable=SC2016 # for the inner one
	serve B "" "${WITH[@]}" sh -c 'exec nc -l "$1" 5000 >"$2"' sh "$ADDR_B" "$TMP/got" || return
	began=$EPOCHREALTIME
	client "${WITH[@]}" nc -N "$ADDR_B" 5000 <"$TMP/file" && arrived "$TMP/file"
}
socat_() {
	: >"$TMP/got"
	serve B "" "${WITH[@]}" socat -u -b 65536 "TCP4-LISTEN:5001,bind=$ADDR_B,reuseaddr" "OPEN:$TMP/got,trunc" || return
	began=$EPOCHREALTIME
	client "${WITH[@]}" socat -u -b 65536 "OPEN:$TMP/file" "TCP4:$ADDR_B:5001" && arrived "$TMP/file"
}
ssh-keygen -q -t ed25519 -N '' -f "$TMP/key"
mkdir -p /run/sshd "$TMP/home"
cat >"$TMP/sshd_config" <<-CONF
	HostKey $TMP/key
	AuthorizedKeysFile $TMP/key.pub
	StrictModes no
	PermitRootLogin yes
	UsePAM no
	PidFile none
	Subsystem sftp internal-sftp
CONF
scp_() {
	rm -f "$TMP/got"
	serve B "Server listening" "${WITH[@]}" /usr/sbin/sshd -D -e -f "$TMP/sshd_config" -o "ListenAddress=$ADDR_B:2222" || return
	began=$EPOCHREALTIME
	client "${WITH[@]}" scp -q -P 2222 -i "$TMP/key" -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null \
		-o BatchMode=yes "$TMP/secret" "root@$ADDR_B:$TMP/got" && arrived "$TMP/secret"
}
measure "iperf3 $(version "$(iperf3 --version)")" "one stream, 3 s" MB/s iperf
measure "netcat-openbsd $(version "$(dpkg-query -W netcat-openbsd)")" "50 MB" MB/s netcat
measure "socat $(version "$(socat -V | sed -n 2p)")" "50 MB" MB/s socat_
measure "openssh $(version "$(ssh -V 2>&1)")" "scp of 8 MB" MB/s scp_
ktap_done
