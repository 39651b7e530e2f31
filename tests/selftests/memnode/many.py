#!/usr/bin/python3
"""More than there is room for, by well-behaved programs.
  many.py grants NODE SECONDS   threads that read and write more regions of the node at a time than a link has grants
  many.py keep NODE             a region that stays, and whose descriptor cannot be made
  many.py regions NODE MOST     as many regions as this host may have
(NODE: number of the node in domain 1)
"""
import collections
import errno
import fcntl
import os
import resource
import struct
import sys
import threading
import time

ALLOC, KEEP = 3 << 30 | 96 << 16 | 0xE7 << 8 | 0x12, 1
BYTES, THREADS = 16384, 96
device = os.open("/dev/zrs", os.O_RDWR)
what, node = sys.argv[1], int(sys.argv[2])


def check(name, ok):
    print(("ok - " if ok else "not ok - ") + name, flush=True)


def alloc(length, flags=0):
    return fcntl.ioctl(device, ALLOC, bytearray(struct.pack("<IIQQII16s32s16s", 1, node, length, 0, flags, 0, b"", b"", b"")))


def grants(seconds):
    failed, rounds, end = collections.Counter(), [0] * THREADS, time.monotonic() + seconds

    def use(n, region):
        data = bytes([n + 1]) * BYTES
        # Who waits in vain is told so in the end.
        while time.monotonic() < end or not rounds[n]:
            try:
                ok = os.pwrite(region, data, 0) == BYTES and os.pread(region, BYTES, 0) == data
                failed["other bytes"] += not ok
            except OSError as e:
                failed[errno.errorcode[e.errno]] += 1
            rounds[n] += 1

    threads = [threading.Thread(target=use, args=(n, alloc(BYTES))) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"# {sum(rounds)} rounds, {min(rounds)} of one thread at least: {+failed}")
    check(f"{THREADS} regions are read and written at a time", not +failed)
    check("and every thread has its turn", min(rounds) > 0)


def keep():
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (device + 1, limit[1]))
    try:
        alloc(4096, KEEP)
        why = 0
    except OSError as e:
        why = e.errno
    resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    check("a region without a descriptor is refused", why == errno.EMFILE)


def regions(most):
    resource.setrlimit(resource.RLIMIT_NOFILE, (most + 100, most + 100))
    kept, why = [], 0
    while not why and len(kept) < most + 10:
        try:
            kept.append(alloc(4096))
        except OSError as e:
            why = e.errno
    check(f"a host has {len(kept)} regions of a node: {os.strerror(why)}", (len(kept), why) == (most, errno.EDQUOT))
    os.close(kept.pop())
    end = time.monotonic() + 20 * int(os.environ.get("TIME_SCALE", "1")) * int(os.environ.get("LIMIT_SCALE", "1"))
    again = None
    while again is None and time.monotonic() < end:
        try:
            again = alloc(4096)
        except OSError as e:
            if e.errno != errno.EDQUOT:
                raise
    check("and another one when one was freed", again is not None)
    print("full", flush=True)
    sys.stdin.read()


{"grants": lambda: grants(int(sys.argv[3])), "keep": keep, "regions": lambda: regions(int(sys.argv[3]))}[what]()
