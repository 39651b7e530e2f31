#!/usr/bin/python3
"""Writes a region again and again until that is refused.
  hammer.py STORAGE-ID [KIB]    (of a write, 256 if it is not said)
Exit status 0 if it was refused as a region that has ended, or one that takes no writes, or if the link was ended since
the write took too long.
"""
import errno
import os
import sys
import time

sys.path.insert(0, "/zrs/userspace/examples")
from zrs_mem import opened

region = opened(sys.argv[1])
size = os.fstat(region).st_size
block = int((sys.argv[2:] or ["256"])[0]) << 10
count = 0
try:
    while True:
        count += 1
        begun = time.monotonic()
        os.pwrite(region, bytes([count % 255 + 1]) * block, count % 4 * block % (size - block + 1))
        if count == 1:
            print("writing", flush=True)
except OSError as e:
    print(f"after {count} writes: {e.strerror}", flush=True)
    # The node waits 2 s for what is under way, then it ends the link; this write may have begun a little later.
    late = e.errno == errno.ECONNRESET and time.monotonic() - begun >= 1.5
    sys.exit(not late and e.errno not in (errno.ESTALE, errno.EACCES, errno.EROFS))
