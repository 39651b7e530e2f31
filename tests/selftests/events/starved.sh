#!/bin/bash
# A thread that is woken to take a link's completions, and gets no processor: the message for another thread does not
# wait for it. The first thread is on a processor that a real-time thread occupies. After the end of the real-time thread, threads take
# completions again.
# rows: E2 E3 B11
# On the debug kernel, with other virtual machines on the host, the reader's thread is late again and again: whether it
# takes completions in the time of this test depends on the load.
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
mount -t tracefs tracefs /sys/kernel/tracing 2>/dev/null
check_lines python3 "$(dirname "$0")/starved.py"
ktap_done
