#!/usr/bin/python3
"""A region that no remote key is given for: read and written by messages, by calls, by a queue and by io_uring.
  messages.py STORAGE-ID    (of a region of at least 8 MiB)
"""
import ctypes
import fcntl
import os
import struct
import sys

sys.path.insert(0, "/zrs/userspace/examples")
from zrs_mem import opened

QUEUE, SUBMIT = 1 << 30 | 16 << 16 | 0xE7 << 8 | 0x14, 1 << 30 | 16 << 16 | 0xE7 << 8 | 0x58
WRITE, READ = 2, 3
# A packet for each side and 4 KiB.
PACKETS_A_MIB = 2 * 256

device = os.open("/dev/zrs", os.O_RDWR)
region = opened(sys.argv[1])


def check(name, ok):
    print(("ok - " if ok else "not ok - ") + name, flush=True)


def packets():
    with open("/proc/net/dev", encoding="ascii") as table:
        words = next(line.split() for line in table if line.split()[0] == "va:")
    return int(words[2]) + int(words[10])


SIZE = 2 << 20
data = os.urandom(SIZE)
before = packets()
check("a write", os.pwrite(region, data, 4097) == SIZE)
check("by messages", packets() - before >= PACKETS_A_MIB * (SIZE >> 20))
before = packets()
check("a read", os.pread(region, SIZE, 4097) == data)
check("by messages, too", packets() - before >= PACKETS_A_MIB * (SIZE >> 20))
for length, at in ((1, 3), (4096, 5 << 20), (4097, 1), (100_001, (6 << 20) - 7)):
    part = data[:length]
    check(f"{length} bytes at {at}", os.pwrite(region, part, at) == length and os.pread(region, length, at) == part)
check("small reads, again and again", all(os.pread(region, 100, 1) == data[:100] for _ in range(30)))

queue = fcntl.ioctl(device, QUEUE, bytearray(struct.pack("<IIQ", 8, 0, 0)))


def queued(op, memory, off, length):
    entry = struct.pack("<BBHiiIQQQQQQ", op, 0, 0, region, 0, 0, off, ctypes.addressof(memory), length, 7, 0, 0)
    entry = ctypes.create_string_buffer(entry)
    fcntl.ioctl(queue, SUBMIT, bytearray(struct.pack("<QII", ctypes.addressof(entry), 1, 0)))
    return struct.unpack("<QqQII", os.read(queue, 32))[1:3]


for length, at in ((SIZE, 8191), (4097, 100), (300_000, 1 << 20)):
    out, back = ctypes.create_string_buffer(data[:length], length), ctypes.create_string_buffer(length)
    check(f"a queued write of {length} bytes", queued(WRITE, out, at, length) == (length, length))
    check(f"a queued read of {length} bytes", queued(READ, back, at, length) == (length, length))
    check("of the same", back.raw == out.raw)
