#!/usr/bin/python3
"""A key for one use is good for one call, of any length.
  once.py REGION READ WRITE     storage ids: of a region, and of it with keys for one use
"""
import errno
import os
import sys

sys.path.insert(0, "/zrs/userspace/examples")
from zrs_mem import opened

# More than two of the parts of which a call is made, and a rest that one message has room for.
LENGTH = (9 << 20) + 100
whole, reads, writes = sys.argv[1:]
region = opened(whole)
content = os.urandom(LENGTH)
if os.pwrite(region, content, 0) != LENGTH:
    sys.exit("the region was not filled")


def check(name, holds, got=""):
    print(f"ok - {name}" if holds else f"not ok - {name}: {got}", flush=True)


def call(what, *args):
    """The result, or the name of the error."""
    try:
        return what(*args)
    except OSError as e:
        return errno.errorcode[e.errno]


one = opened(reads)
got = call(os.pread, one, LENGTH, 0)
check("one read of 9 MiB by a key for one use", got == content, got if isinstance(got, str) else f"{len(got)} bytes")
got = call(os.pread, one, LENGTH, 0)
check("which is used up then", got == "ESTALE", got if isinstance(got, str) else f"{len(got)} bytes")
one = opened(writes)
content = content[::-1]
got = call(os.pwrite, one, content, 0)
check("one write of 9 MiB by a key for one use", got == LENGTH, f"{got}")
check("has written all", os.pread(region, LENGTH, 0) == content)
got = call(os.pwrite, one, content, 0)
check("and a second one nothing", got == "ESTALE", f"{got}")
