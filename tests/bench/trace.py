# SPDX-License-Identifier: GPL-2.0
"""Parts of the halves of round trips, from a trace of tests/bench/trace-guest on stdin.

A half begins when one program posts its message to Soft-RoCE, and ends when the other one posts the answer. Up to
the completion of the receive it is the device's. Usage: trace.py CARRIER
"""

import re
import statistics
import sys

PROGRAM = "ib_send_lat" if sys.argv[1].startswith("verbs") else "zrs"
LINE = re.compile(r"\s*(.+?)-(\d+)\s+\[\d+\] \S+\s+([\d.]+): (\w+):? (.*)")
PARTS = [
    ("sent", "posted", "the device's sending work begins"),
    ("queued", "sent", "the packet has crossed, the receiving work is queued"),
    ("arrived", "queued", "the receive completes"),
    ("woken", "arrived", "the receiver is woken, if it sleeps"),
    ("running", "woken", "the receiver runs"),
    ("answered", "running", "the receiver posts its answer"),
    ("arrived", "posted", "the device's part: until the receive completes"),
    ("answered", "arrived", "the receiver's part: until the answer is posted"),
    ("answered", "posted", "all of it"),
]


def halves(lines):
    """Yields for each half what happened in it, and when, in microseconds."""
    half = {}
    for line in lines:
        match = LINE.match(line)
        if not match:
            continue
        task, pid, seconds, event, text = match.groups()
        now = float(seconds) * 1e6
        if event == "rxe_post_send" and task == PROGRAM:
            if "arrived" in half and half["pid"] != pid:
                yield {**half, "answered": now}
            half = {"posted": now, "pid": pid}
        elif not half:
            continue
        elif event == "rxe_cq_post" and "rxe_receiver" in text:
            half.setdefault("arrived", now)
        elif event == "workqueue_queue_work" and "[rdma_rxe]" in text:
            work = re.search(r"struct=(\S+)", text).group(1)
            if task == PROGRAM:
                half.setdefault("sending", work)
            elif "sent" in half:
                half.setdefault("queued", now)
        elif event == "workqueue_execute_start" and "[rdma_rxe]" in text:
            work = re.search(r"struct (\S+):", text).group(1)
            if half.get("sending") == work:
                half.setdefault("sent", now)
        elif event == "sched_waking" and f"comm={PROGRAM}" in text:
            if "arrived" in half and "woken" not in half:
                half |= {"woken": now, "who": re.search(r" pid=(\d+)", text).group(1)}
        elif event == "sched_switch" and "woken" in half:
            if re.search(r"next_pid=(\d+)", text).group(1) == half["who"]:
                half.setdefault("running", now)


def main():
    """Prints a line for each part."""
    found = list(halves(sys.stdin))
    print(f"{sys.argv[1]}: {len(found)} halves of round trips, medians in us")
    for end, begin, what in PARTS:
        took = [half[end] - half[begin] for half in found if end in half and begin in half]
        # What happens in a few only, tells nothing.
        if len(took) > len(found) / 10:
            print(f"  {statistics.median(took):6.0f}  {what} ({len(took)})")


main()
