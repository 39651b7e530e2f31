#!/usr/bin/python3
"""recycled.py REGION N: reads REGION by N keys, one after the other, each of which is revoked afterwards."""
import os
import sys

sys.path.insert(0, "/zrs/userspace/examples")
import zrs_mem

# By READ, of memory that the node's device has registered for it.
SIZE = 256 << 10

storage = sys.argv[1]
region = zrs_mem.opened(storage)
data = os.urandom(SIZE)
os.pwrite(region, data, 0)
right = 0
for n in range(int(sys.argv[2])):
    key = zrs_mem.derive(region, storage, zrs_mem.READ, 0, SIZE)
    one = zrs_mem.opened(key)
    right += os.pread(one, SIZE, 0) == data
    zrs_mem.revoke(region, key)
    if n % 16 == 0:
        try:
            os.pread(one, SIZE, 0)
        except OSError:
            pass
        else:
            right -= 1
    os.close(one)
print("right", right)
