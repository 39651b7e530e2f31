#!/usr/bin/python3
"""The network to the target is cut in the middle of copies and writes, whose completions tell how many bytes have landed: at
the target's own host its memory has them.
  landed.py PORT    (of the target's host at the bridge)
"""
import ctypes
import errno
import os
import subprocess
import sys
import threading
import time

sys.path.insert(0, "/zrs/userspace/examples")
from zrs_mem import alloc, free, opened
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from hosts import host
from memqueue import COPY, WRITE, completions, entry, queue, submit

# A copy is acknowledged after each 16 MiB, a write after each 4 MiB.
SIZE, BLOCK = 40 << 20, 4096
ERRORS = {-errno.ECONNRESET, -errno.EHOSTUNREACH}


def check(name, ok):
    print(("ok - " if ok else "not ok - ") + name, flush=True)


def cut(state):
    subprocess.run(["bridge", "-n", "zrsL", "link", "set", "dev", sys.argv[1], "state", state], check=True)


def by_queue(op, source):
    """An operation of a queue: its result and the bytes that have landed."""
    def moved(target):
        one = queue()
        submit(one, entry(op, target, 0, *source(op)))
        res, done = completions(one, 1)[1]
        os.close(one)
        return res, done
    return moved


def by_call(call):
    """A call that says the bytes as its result: those that have landed, if there are any."""
    def moved(target):
        try:
            done = call(target)
            return (done, done) if done == SIZE else (-errno.ECONNRESET, done)
        except OSError as e:
            return -e.errno, 0
    return moved


with host("A"):
    from_node = alloc((1, 1), SIZE)[0]
data = os.urandom(SIZE)
os.pwrite(from_node, data, 0)
program = ctypes.create_string_buffer(data, SIZE)
at = ctypes.addressof(program)
for what, moved in (
    ("a queued copy", by_queue(COPY, lambda op: (0, SIZE, 1, from_node))),
    ("a queued write", by_queue(WRITE, lambda op: (at, SIZE, 1))),
    ("copy_file_range()", by_call(lambda target: os.copy_file_range(from_node, target, SIZE, 0, 0))),
    ("pwrite()", by_call(lambda target: os.pwrite(target, data, 0))),
):
    landed, wrong, found, whole = [], [], set(), 0.0
    for n in range(14):
        # The target's host owns its region, which outlives the link.
        with host("C"):
            look, text = alloc((1, 2), SIZE)
        target = None
        while target is None:
            try:
                with host("A"):
                    target = opened(text)
            except OSError as e:
                if -e.errno not in ERRORS:
                    raise
        result = []
        thread = threading.Thread(target=lambda: result.extend(moved(target)))
        begun = time.monotonic()
        thread.start()
        if n > 1:
            time.sleep(whole * (0.9 - n % 9 * 0.09))
            cut("0")
        thread.join()
        took = time.monotonic() - begun
        cut("3")
        res, done = result
        # The first one makes links.
        if res == SIZE:
            whole = min(whole or took, took)
        memory = os.pread(look, SIZE, 0)
        if memory[:done] != data[:done]:
            blocks = range(0, done, BLOCK)
            wrong.append((res, done, next(i for i in blocks if memory[i:i + BLOCK] != data[i:i + BLOCK])))
        # Behind them each block is old, or new, or, where a packet ended in it, some of both.
        for off in range(done, SIZE, BLOCK):
            here, new = memory[off:off + BLOCK], data[off:off + BLOCK]
            if here != new and any(here) and any(a not in (0, b) for a, b in zip(here, new)):
                wrong.append((res, done, off))
                break
        found.add(res)
        landed.append(done)
        free(look)
        for fd in target, look:
            os.close(fd)
        if n >= 3 and sum(0 < d < SIZE for d in landed) >= 2:
            break
    print(f"# {what}: one takes {whole:.2f} s; landed: {landed}", flush=True)
    check(f"{what} whose target is cut off: {sorted(found)}", found <= ERRORS | {SIZE} and len(found) > 1)
    check("it was in the middle", any(0 < done < SIZE for done in landed))
    check("what it says has landed" + (f": {wrong}" if wrong else ""), not wrong)
