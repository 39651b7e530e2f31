#!/usr/bin/python3
"""Writes and reads the first 100000 bytes of a region by a queue.
  queued.py STORAGE-ID
"""
import ctypes
import fcntl
import os
import struct
import sys

sys.path.insert(0, "/zrs/userspace/examples")
from zrs_mem import opened

QUEUE, SUBMIT = 1 << 30 | 16 << 16 | 0xE7 << 8 | 0x14, 1 << 30 | 16 << 16 | 0xE7 << 8 | 0x58
WRITE, READ, SIZE = 2, 3, 100000

region = opened(sys.argv[1])
memory = ctypes.create_string_buffer(SIZE)
queue = fcntl.ioctl(os.open("/dev/zrs", os.O_RDWR), QUEUE, bytearray(struct.pack("<IIQ", 8, 0, 0)))
for op in WRITE, READ:
    words = struct.pack("<BBHiiIQQQQQQ", op, 0, 0, region, 0, 0, 0, ctypes.addressof(memory), SIZE, 7, 0, 0)
    entry = ctypes.create_string_buffer(words, len(words))
    fcntl.ioctl(queue, SUBMIT, bytearray(struct.pack("<QII", ctypes.addressof(entry), 1, 0)))
    done = struct.unpack("<QqQII", os.read(queue, 32))[1]
    if done != SIZE:
        sys.exit(f"operation {op}: {done}")
