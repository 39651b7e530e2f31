#!/usr/bin/python3
"""Writes a region again and again until that is refused.
  hammer.py STORAGE-ID
Exit status 0 if it was refused as a region that has ended, or one that takes no writes.
"""
import errno
import os
import sys

sys.path.insert(0, "/zrs/userspace/examples")
from zrs_mem import opened

region = opened(sys.argv[1])
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
