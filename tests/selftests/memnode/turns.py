#!/usr/bin/python3
"""Programs that write and read by one link while another one keeps it busy.
  turns.py hog COUNTER REGION    keeps 64 writes of 1 MiB queued; the number of completions is in the file COUNTER
  turns.py ask COUNTER REGION    writes and reads of 4 MiB: how many of the hog's complete during each
"""
import ctypes
import fcntl
import mmap
import os
import struct
import sys
import threading

sys.path.insert(0, "/zrs/userspace/examples")
from zrs_mem import opened
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from hosts import PATIENCE

QUEUE, SUBMIT = 1 << 30 | 16 << 16 | 0xE7 << 8 | 0x14, 1 << 30 | 16 << 16 | 0xE7 << 8 | 0x58
WRITE, READ = 2, 3
QUEUED, PART, SIZE = 64, 1 << 20, 4 << 20
# With as much for each, 4 complete, and before them what is under way already: 4. Where the own one waits for the hog to have
# nothing to do, it never ends.
MOST = 24

role, path, region = sys.argv[1:]
region = opened(region)
memory = mmap.mmap(-1, SIZE)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
with open(path, "r+b") as file:
    counter = mmap.mmap(file.fileno(), 8)


def queue():
    return fcntl.ioctl(os.open("/dev/zrs", os.O_RDWR), QUEUE, bytearray(struct.pack("<IIQ", QUEUED, 0, 0)))


def submit(to, op, length):
    words = struct.pack("<BBHiiIQQQQQQ", op, 0, 0, region, 0, 0, 0, address, length, 1, 0, 0)
    entry = ctypes.create_string_buffer(words, len(words))
    fcntl.ioctl(to, SUBMIT, bytearray(struct.pack("<QII", ctypes.addressof(entry), 1, 0)))


def taken(of, most):
    return [res for _, res, *_ in struct.iter_unpack("<QqQII", os.read(of, 32 * most))]


def count():
    return struct.unpack("<Q", counter[:8])[0]


if role == "hog":
    q, done, room = queue(), 0, QUEUED
    while True:
        for _ in range(room):
            submit(q, WRITE, PART)
        ends = taken(q, QUEUED)
        if set(ends) != {PART}:
            sys.exit(f"a write: {ends}")
        room = len(ends)
        done += room
        counter[:8] = struct.pack("<Q", done)
        if done - room < QUEUED <= done:
            print("writing", flush=True)


def queued(op):
    def once():
        submit(once.queue, op, SIZE)
        return taken(once.queue, 1)[0]

    once.queue = queue()
    return once


def late(name):
    print(f"not ok - {name}: not done in time", flush=True)
    os._exit(1)


for name, once in (
    ("a queued write", queued(WRITE)),
    ("a queued read", queued(READ)),
    ("pwrite()", lambda: os.pwrite(region, memory, 0)),
    ("preadv()", lambda: os.preadv(region, [memory], 0)),
):
    timer = threading.Timer(20 * PATIENCE, late, (name,))
    timer.start()
    waits = []
    for _ in range(5):
        before = count()
        if once() != SIZE:
            sys.exit(f"{name}: not all")
        waits.append(count() - before)
    timer.cancel()
    print(f"# the other program's writes during each: {waits}")
    # Not each: between the steps the own program may have to wait for a processor.
    print(("ok" if sorted(waits)[2] <= MOST else "not ok") + f" - {name} of 4 MiB is done before {MOST} of the other program")
    print(("ok" if sum(waits) else "not ok") + " - which goes on meanwhile", flush=True)
