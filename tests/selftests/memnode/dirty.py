#!/usr/bin/python3
"""A region is read into a mapped file, which is written back in the middle.
  dirty.py REGION FILE FIFO    says "ready", reads when a line comes by FIFO, and says "written back" before
                               the bytes are there, and "right" if FILE has them in the end
"""
import mmap
import os
import sys
import threading
import time

sys.path.insert(0, "/zrs/userspace/examples")
import zrs_mem

SIZE = 256 << 10


def pinned():
    """Pages of the machine that are pinned."""
    with open("/proc/sys/vm/stat_refresh", "w", encoding="ascii") as file:
        file.write("1")
    with open("/proc/vmstat", encoding="ascii") as file:
        now = {name: int(n) for name, n in (line.split() for line in file)}
    return now["nr_foll_pin_acquired"] - now["nr_foll_pin_released"]


region = zrs_mem.opened(sys.argv[1])
want = os.pread(region, SIZE, 0)
file = os.open(sys.argv[2], os.O_RDWR)
mapped = mmap.mmap(file, SIZE)
mapped[:] = b"a" * SIZE
go = os.open(sys.argv[3], os.O_RDONLY)
# The remote key is there, so that the next read is posted at once.
os.pread(region, SIZE, 0)
print("ready", flush=True)
os.read(go, 10)
read = threading.Thread(target=os.preadv, args=(region, [mapped], 0))
before = pinned()
read.start()
PATIENCE = int(os.environ.get("TIME_SCALE", "1")) * int(os.environ.get("LIMIT_SCALE", "1"))
until = time.monotonic() + 20 * PATIENCE
while pinned() - before < SIZE >> 12 and time.monotonic() < until:
    time.sleep(0.01)
mapped.flush()
print("written back", "early" if read.is_alive() else "late", flush=True)
read.join()
# The module marks the pages a moment later, and lets go of them then.
until = time.monotonic() + 20 * PATIENCE
while pinned() > before and time.monotonic() < until:
    time.sleep(0.01)
print("read", mapped[:] == want, flush=True)
mapped.close()
os.close(file)
file = os.open(sys.argv[2], os.O_RDONLY)
got = b"".join(os.pread(file, 64 << 10, at) for at in range(0, SIZE, 64 << 10))
print("right" if got == want else f"{sum(g == w for g, w in zip(got, want))} of {SIZE} bytes", flush=True)
