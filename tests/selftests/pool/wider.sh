#!/bin/bash
# A connection that got a small window, since others had the room, gets a larger one when they are
# gone.
# debug: full
# rows: C3 Z2
# timeout: 60
# params: pool_mib=2 window_idle_ms=3000
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
check_pair "5 connections, and one" windows --wider --conns 5 --pause $((300 * SCALE))
# On a busy machine a request may come before the data ahead of it is read, or wait too long.
denied=$(cache denied)
check "hardly a request was denied: $denied" [ "$denied" -le 2 ]
check_eq "no link was closed by an error" 0 "$(counter protocol_errors)"
check "no window is leaked" zrs_idle
ktap_done
