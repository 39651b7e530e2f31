#!/usr/bin/python3
"""Frees a region that sixteen threads are writing, and counts the bytes that this host sends until that has returned.
  underway.py STORAGE-ID
What is under way by remote keys is bounded, so that whoever ends a region does not wait for the threads' whole writes.
"""
import errno
import fcntl
import os
import sys
import threading
import time

sys.path.insert(0, "/zrs/userspace/examples")
from zrs_mem import opened

THREADS, SIZE = 16, 4 << 20
# At most 4 MiB are under way before the FREE, and as much again before its end or a little more. Without a bound it would be
# what the send queue holds, and the threads have: 27 MiB each time.
MOST = 16 << 20
REGION_FREE = 0xE7 << 8 | 0x54

region = opened(sys.argv[1])
begun = threading.Barrier(THREADS + 1)


def sent():
    with open("/proc/net/dev", encoding="ascii") as table:
        return sum(int(line.split()[9]) for line in table if line.split()[0] == "va:")


def write():
    block = bytes(SIZE)
    begun.wait()
    try:
        while True:
            os.pwrite(region, block, 0)
    except OSError:
        pass


threads = [threading.Thread(target=write) for _ in range(THREADS)]
for thread in threads:
    thread.start()
begun.wait()
time.sleep(0.5)
before = sent()
since = time.monotonic()
try:
    fcntl.ioctl(region, REGION_FREE)
except OSError as e:
    # The node waits 2 s for what is under way, then it ends the link.
    if e.errno != errno.ECONNRESET or time.monotonic() - since < 2:
        raise
bytes_sent = sent() - before
for thread in threads:
    thread.join()
print(f"# {bytes_sent >> 10} KiB until a region that sixteen threads write was freed", flush=True)
sys.exit(bytes_sent > MOST)
