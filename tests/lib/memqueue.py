# SPDX-License-Identifier: GPL-2.0
"""The queue of memory nodes' operations, for tests in Python."""
import ctypes
import fcntl
import os
import struct

QUEUE, SUBMIT = 1 << 30 | 16 << 16 | 0xE7 << 8 | 0x14, 1 << 30 | 16 << 16 | 0xE7 << 8 | 0x58
COPY, WRITE, READ, CANCEL = 1, 2, 3, 4


def queue(entries=64):
    """A queue's descriptor."""
    device = os.open("/dev/zrs", os.O_RDWR)
    try:
        return fcntl.ioctl(device, QUEUE, bytearray(struct.pack("<IIQ", entries, 0, 0)))
    finally:
        os.close(device)


def entry(op, region, off, source, length, name, source_region=0):
    """An operation, as struct zrs_mem_sqe has it."""
    return struct.pack("<BBHiiIQQQQQQ", op, 0, 0, region, source_region, 0, off, source, length, name, 0, 0)


def submit(to, *entries):
    """How many were taken."""
    memory = ctypes.create_string_buffer(b"".join(entries))
    return fcntl.ioctl(to, SUBMIT, bytearray(struct.pack("<QII", ctypes.addressof(memory), len(entries), 0)))


def completions(of, count):
    """Waits for that many: {name: (res, done)}."""
    found = {}
    while len(found) < count:
        for name, res, done, *_ in struct.iter_unpack("<QqQII", os.read(of, 32 * count)):
            found[name] = (res, done)
    return found
