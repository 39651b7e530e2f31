# orphan.py FIFO: a region of node 1:1 that is not kept. Commands come by lines of the FIFO:
#   once: one pread()    read: the same, until it succeeds or 30 s are over
import os
import sys
import time

sys.path.insert(0, "/zrs/userspace/examples")
import zrs_mem

SIZE = 1 << 20
region, _ = zrs_mem.alloc((1, 1), SIZE)
os.pwrite(region, b"x" * SIZE, 0)
print("ready", flush=True)
for line in open(sys.argv[1]):
    end = time.monotonic() + 30
    while True:
        try:
            data = os.pread(region, SIZE, 0)
            print("read" if data == b"x" * SIZE else "wrong bytes", flush=True)
            break
        except OSError as e:
            if line == "once\n" or time.monotonic() > end:
                print("failed:", os.strerror(e.errno), flush=True)
                break
            time.sleep(0.2)
