#!/usr/bin/python3
"""Holds something of memory nodes open, and nothing else of the module.
  busy.py node|region|queue
"""
import fcntl
import os
import struct
import sys
import time

SIZE = 1 << 20


def ioctl_number(direction, number, size):
    return direction << 30 | size << 16 | 0xE7 << 8 | number


device = os.open("/dev/zrs", os.O_RDWR)


def call(direction, number, request):
    return fcntl.ioctl(device, ioctl_number(direction, number, len(request)), bytearray(request))


def serve():
    memory = os.memfd_create("node")
    os.ftruncate(memory, SIZE)
    fd = call(1, 0x10, struct.pack("<IIiIQQ16sIIQQ", 0, 1, memory, 1, 0, SIZE, b"", 0, 0, 0, 0))
    os.close(memory)
    return fd


what = sys.argv[1]
if what == "queue":
    held = call(1, 0x14, struct.pack("<IIQ", 8, 0, 0))
else:
    held = serve()
if what == "region":
    node = held
    held = call(3, 0x12, struct.pack("<IIQQII16s32s16s", 0, 1, 4096, 0, 0, 0, b"", b"", b""))
    os.close(node)  # the region ends, its descriptor stays
os.close(device)
print("holding", flush=True)
time.sleep(600)
