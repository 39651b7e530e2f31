"""Messages on one of two connections that share a link, while the reader of the other one gets no processor, and after.

Each message comes when the module again trusts that reader to take the link's completions: after a second at most.
"""

import os
import pathlib
import socket
import sys
import time

sys.path.insert(0, "/zrs/tests/lib")
from hosts import SCALE, answer, check, child, end, host, skip

ZRS = 253
ADDR = (os.environ["ADDR_B"], 7350)
ROUNDS = 4
# Of one run, and how many runs there are in a look.
QUESTIONS, RUNS = 10, 10
# The kernel gives the reader a processor after a second.
LIMIT = 0.8 * SCALE


def spin():
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    while True:
        pass


def ask(conn):
    conn.sendall(b"?")
    conn.recv(1)


def works(conn):
    """How many work items of the module run while QUESTIONS are asked: of several runs the one with the fewest. A link
    whose readers take no completions has two or more for each question. A reader that is late once is not trusted for a
    while, so that a busy machine may have few runs without one."""
    tracing = pathlib.Path("/sys/kernel/tracing")
    (tracing / "trace").write_text("")
    enable = tracing / "events/workqueue/workqueue_execute_start/enable"
    mark = "questions are asked"
    enable.write_text("1")
    for _ in range(RUNS):
        (tracing / "trace_marker").write_text(mark)
        for _ in range(QUESTIONS):
            ask(conn)
    enable.write_text("0")
    return min(run.count("[zrs]") for run in (tracing / "trace").read_text().split(mark)[1:])


def waited(pid):
    """Nanoseconds that a process was ready to run and had no processor."""
    with open(f"/proc/{pid}/schedstat") as file:
        return int(file.read().split()[1])


def main():
    os.sched_setaffinity(0, {0})
    with host("B"):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, ZRS)
        listener.bind(ADDR)
        listener.listen()
    conns = []
    for _ in range(2):
        with host("A"):
            conns.append(socket.socket(socket.AF_INET, socket.SOCK_STREAM, ZRS))
            conns[-1].connect(ADDR)
        conns.append(listener.accept()[0])
    _, slow, asking, answering = conns
    answering_process = child(0, answer, answering)

    def first_in_line():
        """A reader that is woken next. An event wakes the one that has waited longest, which then queues as the last."""
        reader = child(1, slow.recv, 1)
        time.sleep(0.5)
        ask(asking)
        return reader

    # One that was late, on a busy machine, is trusted again within half a second. Where the machine is busy now, another
    # try shows it.
    for _ in range(8):
        reader = first_in_line()
        hog = child(1, spin)
        time.sleep(0.5)
        ask(asking)
        end(hog)
        # Threads of a slow kernel, and of a busy machine, are late again and again.
        for _ in range(5 * SCALE):
            time.sleep(0.1)
            if (ran := works(asking)) < QUESTIONS:
                break
        end(reader)
        if ran < QUESTIONS:
            break
    check(f"readers take completions again ({ran} work items for {QUESTIONS} questions)", ran < QUESTIONS, True)
    for _ in range(5):
        reader = first_in_line()
        hog = child(1, spin)
        before, longest = waited(reader), 0.0
        for _ in range(ROUNDS):
            time.sleep(1.3)
            begin = time.monotonic()
            ask(asking)
            longest = max(longest, time.monotonic() - begin)
        end(hog)
        time.sleep(0.5)
        starved = (waited(reader) - before) / 1e9
        end(reader)
        # A busy machine makes an answer late now and then, not each time.
        if starved > 0.1 and longest < LIMIT:
            break
    end(answering_process)
    if starved <= 0.1 and longest < LIMIT:
        # Other completions may have used up the times that it takes them in one call.
        skip("a reader without a processor", "the reader was not woken")
        return
    print(f"# the reader of the other connection was woken, and had no processor for {starved:.1f} s")
    check(f"no answer took {LIMIT} s (the longest: {longest:.3f})", longest < LIMIT, True)


if __name__ == "__main__":
    main()
