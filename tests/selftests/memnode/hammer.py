#!/usr/bin/python3
"""Writes a region again and again until that is refused.
  hammer.py STORAGE-ID
Exit status 0 if it was refused as a region that has ended, or one that takes no writes.
"""
import base64
import errno
import fcntl
import os
import struct
import sys

node, digits = sys.argv[1].removeprefix("zrs:").split("/")
domain, number = (int(part) for part in node.split(":"))
storage = base64.b32decode(digits.upper() + "====")
request = bytearray(struct.pack("<II32s16s", domain, number, storage, b""))
region = fcntl.ioctl(os.open("/dev/zrs", os.O_RDWR), 1 << 30 | len(request) << 16 | 0xE7 << 8 | 0x13, request)
size = os.fstat(region).st_size
count = 0
try:
    while True:
        count += 1
        os.pwrite(region, bytes([count % 255 + 1]) * (256 << 10), count % 4 * 262144 % (size - (256 << 10) + 1))
        if count == 1:
            print("writing", flush=True)
except OSError as e:
    print(f"after {count} writes: {e.strerror}", flush=True)
    sys.exit(e.errno not in (errno.ESTALE, errno.EACCES, errno.EROFS))
