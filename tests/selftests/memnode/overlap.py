#!/usr/bin/python3
"""Writes that overlap and are under way at the same time: each byte is the one's or the other's, and no byte outside of their
ranges changes.
  overlap.py STORAGE-ID    (of a region of node 1:1 of 1 MiB, which this host serves)
"""
import ctypes
import os
import sys
import threading

sys.path.insert(0, "/zrs/userspace/examples")
from zrs_mem import alloc, opened
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from hosts import host
from memqueue import COPY, WRITE, completions, entry, queue, submit

SIZE, STEP, ROUNDS = 1 << 20, 64, 8
# Position and length of both: by messages, by WRITEs, one of each, the same place, one inside the other, at a page's border,
# longer than a chunk.
RANGES = (
    ((100, 3000), (1500, 3000)),
    ((4000, 4096), (4096, 4096)),
    ((5000, 100001), (60001, 70000)),
    ((9, 4097), (2000, 500)),
    ((8192, 65536), (8192, 65536)),
    ((1000, 900000), (300000, 4097)),
    ((0, 700000), (262143, 700000)),
)


def check(name, ok):
    print(("ok - " if ok else "not ok - ") + name, flush=True)


def whole(fd):
    """All bytes. The node's own host copies up to the first page of the program that is gone meanwhile: a call may be short."""
    found = b""
    while len(found) < SIZE and (part := os.pread(fd, SIZE - len(found), len(found))):
        found += part
    return found


def write(fd, text, off):
    """Whether all was written; likewise."""
    done = 0
    while done < len(text) and (n := os.pwrite(fd, text[done:], off + done)):
        done += n
    return done == len(text)


def from_host(name):
    with host(name):
        return opened(sys.argv[1])


def wrong(first, second, base, data, found):
    """A place where the bytes are not what they may be, or None."""
    ranges = [(off, off + n, text) for (off, n), text in zip((first, second), data)]
    borders = sorted({0, SIZE, *(at for low, high, _ in ranges for at in (low, high))})
    for low, high in zip(borders, borders[1:]):
        # Without a write, the bytes of before.
        may = [text for begin, end, text in ranges if begin <= low and high <= end] or [base]
        if found[low:high] in [text[low:high] for text in may]:
            continue
        for at in range(low, high, STEP):
            part = slice(at, min(at + STEP, high))
            if found[part] not in [text[part] for text in may]:
                for i in range(part.start, part.stop):
                    if found[i] not in [text[i] for text in may]:
                        return i
    return None


def by_threads(one, two):
    """A write of each at the same time."""
    def both(first, second, data):
        begun = threading.Barrier(2)
        wrote = {}

        def one_of(fd, where, text):
            off, n = where
            begun.wait()
            wrote[text] = write(fd, text[off:off + n], off)

        threads = [threading.Thread(target=one_of, args=each) for each in ((one, first, data[0]), (two, second, data[1]))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return list(wrote.values()) == [True, True]
    return both


def by_queue(one, source):
    """A copy of another node and a write, of one queue."""
    with host("A"):
        queued = queue()

    def both(first, second, data):
        write(source, data[0], 0)
        program = ctypes.create_string_buffer(data[1], SIZE)
        submit(queued, entry(COPY, one, first[0], first[0], first[1], 1, source),
               entry(WRITE, one, second[0], ctypes.addressof(program) + second[0], second[1], 2))
        found = completions(queued, 2)
        return found[1][0] == first[1] and found[2][0] == second[1]
    return both


look = opened(sys.argv[1])
ours, theirs, again = from_host("A"), from_host("C"), from_host("A")
with host("A"):
    other = alloc((1, 2), SIZE)[0]
random = os.urandom(3 * SIZE)
base = random[2 * SIZE:]
for name, both in (
    ("two hosts", by_threads(ours, theirs)),
    ("two threads with a descriptor each", by_threads(ours, again)),
    ("two threads with one descriptor", by_threads(ours, ours)),
    ("a host and the node's own", by_threads(ours, look)),
    ("a copy and a write of a queue", by_queue(ours, other)),
):
    bad, mixed = [], 0
    for first, second in RANGES:
        for n in range(ROUNDS):
            # Others each time.
            data = [random[at + 1001 * n:][:SIZE] for at in (0, SIZE // 2)]
            write(look, base, 0)
            # Who is first is not always the same.
            done = both(first, second, data) if n % 2 else both(second, first, data)
            found = whole(look)
            where = (first, second) if n % 2 else (second, first)
            at = wrong(*where, base, data, found)
            if at is not None or not done:
                bad.append((*where, at, done))
            low, high = max(first[0], second[0]), min(sum(first), sum(second))
            mixed += found[low:high] not in (data[0][low:high], data[1][low:high])
    check(f"writes that overlap, by {name}" + (f": {bad[:3]}" if bad else ""), not bad)
    print(f"# in {mixed} of {len(RANGES) * ROUNDS} rounds their common bytes were of both", flush=True)
