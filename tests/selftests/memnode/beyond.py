#!/usr/bin/python3
"""A key for a part of a region, opened as if it were for the whole: bytes beyond its range are refused, by message and by
remote key, read, written and copied.
  beyond.py WHOLE PART TARGET     storage ids of a region, of a part of it, and of a region of another node
"""
import ctypes
import errno
import os
import sys

sys.path.insert(0, "/zrs/userspace/examples")
from zrs_mem import _join, _split, opened
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from memqueue import COPY, READ, WRITE, completions, entry, queue, submit

OFF, LENGTH = 1000, 100000
whole, part, target = sys.argv[1:]
node, where = _split(whole)
# The place of the whole region, with the key of the part.
region = opened(_join(node, where[:16] + _split(part)[1][16:]))
other = opened(target)
one = queue()
program = bytearray(LENGTH)
at = ctypes.addressof(ctypes.c_char.from_buffer(program))


def refusal(call, *args):
    try:
        return f"{call(*args)} bytes"
    except OSError as e:
        return errno.errorcode[e.errno]


def queued(*what):
    submit(one, entry(*what))
    res = completions(one, 1)[7][0]
    return errno.errorcode.get(-res, f"{res} bytes")


def check(name, got):
    print(f"ok - {name}" if got == "EACCES" else f"not ok - {name}: {got}", flush=True)


for length in (10, 10_000, 50_000):
    for name, off in (("in front of", OFF - 5), ("behind", OFF + LENGTH - length + 5), ("far behind", OFF + LENGTH + 4096)):
        what = f"{length} bytes {name} the key's range"
        check(f"pread() of {what}", refusal(lambda n, o: len(os.pread(region, n, o)), length, off))
        check(f"pwrite() of {what}", refusal(os.pwrite, region, bytes(length), off))
        check(f"a queued read of {what}", queued(READ, region, off, at, length, 7))
        check(f"a queued write of {what}", queued(WRITE, region, off, at, length, 7))
        check(f"a copy of {what}", queued(COPY, other, 0, off, length, 7, region))
        check(f"a copy into {what}", queued(COPY, region, off, 0, length, 7, other))
got = os.pread(region, LENGTH, OFF)
print("ok - the range itself is read" if len(got) == LENGTH else f"not ok - {len(got)} bytes of the range", flush=True)
