#!/usr/bin/python3
"""Reads of files of `zrs mem mount` while its server is stopped, and the files' changes while they are read.
  passthrough.py stopped|served FILE PID     whether a read of FILE ends while process PID is stopped
  passthrough.py changes FILE
"""
import mmap
import os
import signal
import sys
import threading
import time

sys.path.insert(0, "/zrs/tests/lib")
from hosts import PATIENCE, becomes, check, fails

SIZE = 1 << 20


def states(pid):
    """Of the threads of a process."""
    seen = set()
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/stat", encoding="ascii") as stat:
            seen.add(stat.read().rpartition(") ")[2][0])
    return seen


def while_stopped(path, server):
    """Whether a file that was opened before is read while its server is stopped."""
    fd = os.open(path, os.O_RDONLY)
    read = threading.Thread(target=os.pread, args=(fd, SIZE, 0))
    os.kill(server, signal.SIGSTOP)
    becomes(lambda: states(server), {"T"})
    try:
        read.start()
        read.join(3 * PATIENCE)
        return not read.is_alive()
    finally:
        os.kill(server, signal.SIGCONT)
        read.join()
        os.close(fd)


def passed(path):
    """An open whose reads pass the server by, as a mapping shows: not until the server has heard of a writer's close."""
    until = time.monotonic() + 10 * PATIENCE
    while True:
        fd = os.open(path, os.O_RDONLY)
        try:
            mmap.mmap(fd, SIZE, prot=mmap.PROT_READ).close()
        except OSError:
            return fd
        if time.monotonic() > until:
            return fd
        os.close(fd)
        time.sleep(0.05)


def changes(path):
    data, new, more = (os.urandom(SIZE) for _ in range(3))
    with open(path, "wb") as file:
        file.write(data)
    reader = passed(path)
    check("a file is read", os.pread(reader, SIZE + 1, 0) == data, True)
    check("and not mapped", fails(lambda: mmap.mmap(reader, SIZE, prot=mmap.PROT_READ)), "ENODEV")
    writer = os.open(path, os.O_RDWR)
    os.pwrite(writer, new, 0)
    check("it is written meanwhile, and the reader sees that", os.pread(reader, SIZE, 0) == new, True)
    check("so does the writer", os.pread(writer, SIZE, 0) == new, True)
    check("it grows", os.pwrite(writer, more, SIZE) == SIZE, True)
    check("the reader has its end of before", os.pread(reader, 3 * SIZE, 0) == new, True)
    late = os.open(path, os.O_RDONLY)
    check("a later one has all", os.pread(late, 3 * SIZE, 0) == new + more, True)
    os.close(writer)
    check("also when the writer is gone", os.pread(late, 3 * SIZE, 0) == new + more, True)
    os.truncate(path, 1000)
    check("the file is cut", os.pread(late, 3 * SIZE, 0) == new[:1000], True)
    check("which the first reader does not see", os.pread(reader, SIZE, 0) == new, True)
    os.close(reader)
    os.close(late)
    with open(path, "rb") as file:
        check("a new one does", file.read() == new[:1000], True)


if sys.argv[1] == "changes":
    changes(sys.argv[2])
else:
    ended = while_stopped(sys.argv[2], int(sys.argv[3]))
    sys.exit(ended != (sys.argv[1] == "stopped"))
