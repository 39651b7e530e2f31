#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# The directory of memory nodes from etcd. The value of each key that begins with the prefix is a line of
# /etc/zrs/nodes:
#   etcdctl put /zrs/nodes/1:1 "1:1 192.0.2.11"
# Every few seconds, or at once with each change:
#   zrs mem nodes watch -- etcd.sh [PREFIX]
#   etcd.sh --follow [PREFIX]
# The prefix is /zrs/nodes/ unless another one is given. Where etcd is, and who asks, etcdctl knows from its own
# variables: ETCDCTL_ENDPOINTS, ETCDCTL_CACERT, ETCDCTL_CERT, ETCDCTL_KEY, ETCDCTL_USER. While etcd does not answer, both
# leave the directory as it is.
set -u

# The number of the last change in etcd.
revision() { etcdctl get --prefix --count-only --write-out fields "$1" | sed -n 's/^"Revision" : //p'; }

if [ "${1-}" != --follow ]; then
	exec etcdctl get --prefix --print-value-only "${1-/zrs/nodes/}"
fi
prefix=${2-/zrs/nodes/} watch=
trap 'kill $watch 2>/dev/null' EXIT
trap 'exit 0' INT TERM
while :; do
	# From the change after this one on, so that none is missed in between. A value that is refused has been
	# told, and does not end the watch.
	last=$(revision "$prefix")
	if [ -n "$last" ] && zrs mem nodes watch --once -- "$0" "$prefix"; then
		etcdctl watch --prefix --rev $((last + 1)) "$prefix" -- \
			sh -c 'zrs mem nodes watch --once -- "$0" "$1" >&2 || :' "$0" "$prefix" >/dev/null &
		watch=$!
		wait "$watch"
	fi
	sleep 1
done
