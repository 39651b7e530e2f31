#!/bin/bash
# A node that is alive and does not answer: asynchronous calls end with its link after dead_ms, queued operations when
# they are canceled, at once; what it makes for a program that is gone is undone, and a free that was lost is said again.
# rows: M4 M5 B11
# dma: coherent
# hosts: none
# params: connect_timeout_ms=5000 dead_ms=8000
# timeout: 240
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../../lib/hostile.sh"

ktap_start
hostile_up || ktap_bail "three hosts on a bridge"
hostile --seconds 3 "${CASES:-memory-silent/}"
ktap_done
