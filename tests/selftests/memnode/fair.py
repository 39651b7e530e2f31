#!/usr/bin/python3
"""A host uses a node that is busy with another host's copies.
  fair.py long COUNTER SOURCE TARGET    whole copies, one after the other; the number in the file COUNTER is odd during each
  fair.py look COUNTER SOURCE TARGET    reads single bytes: how many reads begin and end within one of those copies
  fair.py hog COUNTER SOURCE TARGET     keeps 1024 copies of 64 KiB queued; the number of completions is in the file COUNTER
  fair.py ask COUNTER SOURCE TARGET     20 copies, one after the other: how many of the hog's complete meanwhile
"""
import ctypes
import errno
import fcntl
import mmap
import os
import struct
import sys

sys.path.insert(0, "/zrs/userspace/examples")
from zrs_mem import opened

QUEUED, PART = 1024, 64 << 10
# A turn of 1 MiB before the own one, what is under way at a time, and what completes before the answer has arrived.
MOST = 96


def ioctl_number(direction, number, size):
    return direction << 30 | size << 16 | 0xE7 << 8 | number


role, path, source, target = sys.argv[1:]
device = os.open("/dev/zrs", os.O_RDWR)
source, target = opened(source), opened(target)
with open(path, "r+b") as file:
    counter = mmap.mmap(file.fileno(), 8)


def count():
    return struct.unpack("<Q", counter[:8])[0]


if role == "long":
    size, turn = os.fstat(source).st_size, 0
    while True:
        turn += 1
        counter[:8] = struct.pack("<Q", turn)
        if os.copy_file_range(source, target, size, 0, 0) != size:
            sys.exit("a short copy")
        turn += 1
        counter[:8] = struct.pack("<Q", turn)
        if turn == 2:
            print("copying", flush=True)
elif role == "look":
    within, begin = {}, count()
    while count() < begin + 40:
        before = count()
        os.pread(source, 1, 0)
        if before % 2 and count() == before:
            within[before] = within.get(before, 0) + 1
    print(f"# reads within each copy: {sorted(within.values())}")
    good = max(within.values(), default=0) >= 4
    print(("ok" if good else "not ok") + " - another host's reads go on during a copy within the node")
elif role == "hog":
    queue = fcntl.ioctl(device, ioctl_number(1, 0x14, 16), bytearray(struct.pack("<IIQ", QUEUED, 0, 0)))
    sqe = struct.pack("<BBHiiIQQQQQQ", 1, 0, 0, target, source, 0, 0, 0, PART, 1, 0, 0)
    sqes = ctypes.create_string_buffer(sqe * QUEUED)
    room, done = QUEUED, 0
    while True:
        request = bytearray(struct.pack("<QII", ctypes.addressof(sqes), room, 0))
        try:
            room -= fcntl.ioctl(queue, ioctl_number(1, 0x58, 16), request)
        except OSError as e:
            if e.errno != errno.EAGAIN:
                raise
        for _, res, *_ in struct.iter_unpack("<QqQII", os.read(queue, 32 * 64)):
            if res != PART:
                sys.exit(f"a copy: {res}")
            done += 1
            room += 1
        counter[:8] = struct.pack("<Q", done)
        if done and done - 64 <= 0:
            print("copying", flush=True)
else:
    waits = []
    for _ in range(20):
        before = count()
        if os.copy_file_range(source, target, PART, 0, 0) != PART:
            sys.exit("a short copy")
        waits.append(count() - before)
    print(f"# copies of the other host during each: {waits}")
    # Not each: between its messages the own program may have to wait for a processor.
    good = sorted(waits)[len(waits) // 2] <= MOST
    print(("ok" if good else "not ok") + f" - most are done before {MOST} of the other host's {QUEUED}")
    print(("ok" if sum(waits) else "not ok") + " - and the other host goes on meanwhile")
