#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# The directory of memory nodes from DNS. Each text record of the name is a line of /etc/zrs/nodes:
#   nodes.example.net. 60 IN TXT "1:1 192.0.2.11"
# Every few seconds:
#   zrs mem nodes watch -- dns.sh NAME [@SERVER]
# Fails, which leaves the directory as it is, where no server answers, where the answer is an error, and where there is no
# such record: a name that was mistyped does not empty the directory. Whoever can change the records, or forge an answer,
# says which hosts this one talks to: ask a server on this host that validates (DNSSEC), or one that you trust.
set -u

name=${1:?usage: dns.sh NAME [@SERVER]}
answer=$(dig +time=2 +tries=2 +noall +comments +answer ${2:+"$2"} "$name" TXT) || {
	echo "dns.sh: no server answers: is one in /etc/resolv.conf, or name one as @ADDRESS" >&2
	exit 1
}
case $answer in
*"status: NOERROR"*) ;;
*)
	echo "dns.sh: $name: $(echo "$answer" | sed -n 's/.*status: \([A-Z]*\).*/\1/p'): is the name right, and the server its own?" >&2
	exit 1
	;;
esac
# A record may be in several pieces, each in quotes.
lines=$(echo "$answer" | sed -n 's/^[^;].*[[:space:]]TXT[[:space:]]*"\(.*\)"$/\1/p' | sed 's/" "//g')
[ -n "$lines" ] || {
	echo "dns.sh: $name has no text record: add one for each node, NODE and ADDRESS" >&2
	exit 1
}
echo "$lines"
