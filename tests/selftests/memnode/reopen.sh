#!/bin/bash
# A region's descriptor is opened again by /proc: all of them use one region, within its rights, and the last one
# closes it. The module stays loaded until then.
# rows: M5
# dma: coherent
# hosts: none
# debug: full
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../../lib/memnode.sh"

here=$(dirname "$0")
ktap_start
nodes_up || ktap_bail "three hosts and two nodes"
check_lines A python3 "$here/reopen.py"
start hold A holding python3 "$here/reopen.py" hold || ktap_bail "a region that was opened again"
stop nodeB TERM
stop nodeC TERM
check_fails "rmmod with such a region: EWOULDBLOCK" "Module zrs is in use" rmmod zrs
stop hold
check "rmmod when it is closed" zrs_unload
ktap_done
