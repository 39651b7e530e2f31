#!/usr/bin/python3
"""Reads or writes a region by memory that does not come: its page faults wait for ever (userfaultfd).
  stuck.py read|write STORAGE-ID
"""
import ctypes
import fcntl
import mmap
import os
import struct
import sys

sys.path.insert(0, "/zrs/userspace/examples")
from zrs_mem import opened

SIZE = 1 << 20
USERFAULTFD, API, REGISTER = 323, 0xC018AA3F, 0xC020AA00

how, text = sys.argv[1:]
region = opened(text)

memory = mmap.mmap(-1, SIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
faults = ctypes.CDLL(None, use_errno=True).syscall(USERFAULTFD, os.O_CLOEXEC)
if faults < 0:
    sys.exit(f"userfaultfd: {os.strerror(ctypes.get_errno())}")
fcntl.ioctl(faults, API, bytearray(struct.pack("<QQQ", 0xAA, 0, 0)))
# The first pages are there, the others are not.
memory[:8192] = bytes(8192)
fcntl.ioctl(faults, REGISTER, bytearray(struct.pack("<QQQQ", at, SIZE, 1, 0)))
print("going", flush=True)
done = os.preadv(region, [memory], 0) if how == "read" else os.pwrite(region, memory, 0)
print(f"{done} bytes", flush=True)
