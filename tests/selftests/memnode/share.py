#!/usr/bin/python3
"""The share of a user without privileges: regions of a node of this host. Root has none.
  share.py NODE MOST    (number of the node in domain 1, and how many regions a user may have)
"""
import errno
import fcntl
import os
import struct
import sys

ALLOC = 3 << 30 | 96 << 16 | 0xE7 << 8 | 0x12
device = os.open("/dev/zrs", os.O_RDWR)
node, most = int(sys.argv[1]), int(sys.argv[2])


def alloc():
    request = struct.pack("<IIQQII16s32s16s", 1, node, 4096, 0, 0, 0, b"", b"", b"")
    return fcntl.ioctl(device, ALLOC, bytearray(request))


def check(name, ok):
    print(("ok - " if ok else "not ok - ") + name, flush=True)


ready, go = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    count = 0
    try:
        while count < 2 * most:
            alloc()
            count += 1
    except OSError as e:
        check(f"a user has {count} regions of this host's node: {e.strerror}", (count, e.errno) == (most, errno.EDQUOT))
    else:
        check("a user has a share of this host's node", False)
    os.write(ready[1], b"x")
    os.read(go[0], 1)
    os._exit(0)
os.read(ready[0], 1)
regions = [alloc() for _ in range(most + 1)]
check("root has no share", len(regions) == most + 1)
os.write(go[1], b"x")
os.waitpid(child, 0)
