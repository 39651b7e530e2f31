# SPDX-License-Identifier: GPL-2.0
"""For tests in Python that run in a host: a line for each thing that was looked at, and sockets in the other hosts."""

import contextlib
import errno
import os

CLONE_NEWNET = 0x40000000
# How much slower than elsewhere everything is.
SCALE = int(os.environ.get("TIME_SCALE", "1"))
# The same for what must happen and is waited for, on a machine that is busy as well.
PATIENCE = SCALE * int(os.environ.get("LIMIT_SCALE", "1"))


def check(name, seen, want):
    """Prints whether a value is the expected one."""
    if seen == want:
        print(f"ok - {name}", flush=True)
    else:
        print(f"not ok - {name}: expected {want}, got {seen}", flush=True)


def fails(call, *args):
    """The name of the error with which a call fails, or "no error"."""
    try:
        call(*args)
    except OSError as e:
        # A time limit of Python's has no number.
        return errno.errorcode[e.errno] if e.errno else "time limit"
    return "no error"


def skip(name, why):
    """Prints that something is not looked at here; the name has no colon."""
    print(f"skip - {name}: {why}", flush=True)


@contextlib.contextmanager
def host(name):
    """What this thread opens in the block is in host A, B or C."""
    with open("/proc/thread-self/ns/net") as here, open(f"/run/netns/zrs{name}") as there:
        os.setns(there.fileno(), CLONE_NEWNET)
        try:
            yield
        finally:
            os.setns(here.fileno(), CLONE_NEWNET)
