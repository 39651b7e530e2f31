#!/bin/bash
# A thread that takes a link's completions shares its processor with forty others, and is preempted in the middle: it
# holds up the connection of other threads once, and not again and again.
# rows: E2 E3 B11
# debug: full
# timeout: 120
. "$(dirname "$0")/../../lib/ktap.sh"
. "$(dirname "$0")/../lib.sh"

ktap_start
# Nothing that the device and the module do may wait for that processor.
workers=/sys/devices/virtual/workqueue/cpumask
before=$(cat $workers)
echo 1 >$workers || ktap_bail "workers that stay on one processor"
at_end "echo $before >$workers"
check_lines python3 "$(dirname "$0")/preempted.py"
ktap_done
