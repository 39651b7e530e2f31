#!/bin/bash
# What TCP can do on sockets that TCP carries and on accepted TCP connections: TLS by the kernel,
# io_uring, sendfile(), urgent data, zero-copy, the owner's packet filter rules, ends and names; each
# as on a TCP socket. And what waits for a connect() is told of either outcome.
# rows: B14 B1 B7
# params: connect_timeout_ms=6000
# timeout: 240
# debug: full
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
# Here the first link may take its time.
echo 10000 >/sys/module/zrs/parameters/fallback_ms
check_lines A python3 "$(dirname "$0")/alike.py"
ktap_done
