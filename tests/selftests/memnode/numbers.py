#!/usr/bin/python3
"""Node and storage ids that do not exist, given to the module by its calls themselves.
  numbers.py user           by a host that serves nothing
  numbers.py administrator  by the host of node 1:1
"""
import contextlib
import ctypes
import errno
import fcntl
import os
import re
import struct
import subprocess
import sys

sys.path.insert(0, "/zrs/userspace/examples")
from zrs_mem import alloc as whole_alloc
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from hosts import becomes
from memqueue import CANCEL, COPY, READ, completions, entry, queue, submit

MOST, MOST64, PAGE, SIZE = 0xFFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF, 4096, 65536
VIA = 2
# With domain and number: of neither, of one, of none, of the largest, of a sign.
NODES = ((1, 99), (1, 0), (0, 99), (0, 0), (99, 1), (1, MOST), (MOST, 1), (MOST, MOST), (1 << 31, 1 << 31), (1, 1 << 8 | 1), (1, 1 << 16 | 1),
         (1 << 16 | 1, 1))


def number(direction, nr, size):
    return direction << 30 | size << 16 | 0xE7 << 8 | nr


SERVE, DIRECTORY, ALLOC, OPEN, REGION, FREE, BROKER, DRAIN = (
    number(d, nr, size) for d, nr, size in ((1, 0x10, 72), (3, 0x11, 64), (3, 0x12, 96), (1, 0x13, 56), (3, 0x15, 80), (1, 0x16, 32),
                                            (1, 0x17, 72), (1, 0x18, 32)))
KEY, UNKEY = number(3, 0x51, 48), number(3, 0x52, 48)
device = os.open("/dev/zrs", os.O_RDWR)


def check(name, ok):
    print(("ok - " if ok else "not ok - ") + name, flush=True)


def call(fd, nr, layout, *values):
    return fcntl.ioctl(fd, nr, bytearray(struct.pack(layout, *values)))


def alloc(node, length=SIZE, va=0, flags=0, via=(0, 0)):
    return call(device, ALLOC, "<IIQQII16s32sIIQ", *node, length, va, flags, 0, b"", b"", *via, 0)


def opened(node, va, length, region, gen, secret, flags=0, via=(0, 0)):
    return call(device, OPEN, "<IIQQIIQIIII", *node, va, length, region, gen, secret, *via, flags, 0)


def errors(calls):
    """The errno of each, and what was called where there is none."""
    found = set()
    for made, *args in calls:
        try:
            fd = made(*args)
            found.add(f"none of {args}")
            if made in (alloc, opened):
                os.close(fd)
        except OSError as e:
            found.add(errno.errorcode[e.errno])
    return found


def refused(name, want, *calls):
    found = errors(calls)
    check(f"{name}: {want}" + ("" if found == {want} else f", not {found}"), found == {want})


def result(of, *entries):
    """The errno of a queued operation."""
    submit(of, *entries)
    return [errno.errorcode.get(-res, str(res)) for res, _ in completions(of, len(entries)).values()]


def state():
    """What the calls must leave as it was: descriptors, regions and keys of the nodes, pinned pages, users of the module."""
    regions = {}
    for name in "BC":
        with contextlib.suppress(subprocess.CalledProcessError):
            said = subprocess.run(["/run/netns-exec", f"zrs{name}", "zrs", "mem", "ls"], stdout=subprocess.PIPE, text=True, check=True)
            regions[name] = said.stdout.count("\n")
    pinned = re.search(r'"pages_pinned":\d+', subprocess.run(["zrs", "stats", "--json"], stdout=subprocess.PIPE, text=True, check=True).stdout)
    with open("/sys/module/zrs/refcnt", encoding="ascii") as count:
        return len(os.listdir("/proc/self/fd")), regions, pinned and pinned[0], int(count.read())


def keys_of(fd):
    info = bytearray(72)
    fcntl.ioctl(fd, number(3, 0x50, 72), info)
    return struct.unpack_from("<I", info, 44)[0]


def user():
    region, _ = whole_alloc((1, 1), SIZE)
    storage = bytearray(72)
    fcntl.ioctl(region, number(3, 0x50, 72), storage)
    va, length, nr, gen, secret = struct.unpack_from("<QQIIQ", storage, 8)
    one = queue()
    text = os.urandom(SIZE)
    os.pwrite(region, text, 0)
    before, keys = state(), keys_of(region)

    refused("an allocation at a node that there is not", "ENXIO", *((alloc, node) for node in NODES))
    refused("by a broker that there is not", "ENXIO", *((alloc, (1, 1), SIZE, 0, VIA, via) for via in NODES))
    refused("a broker without its flag", "EINVAL", (alloc, (1, 1), SIZE, 0, 0, (1, 2)))
    refused("a region that ends behind the last address", "EINVAL", (alloc, (1, 1), SIZE, MOST64), (alloc, (1, 1), MOST64, 1), (alloc, (1, 1), 0))
    found = errors([(alloc, (1, 1), MOST64), (alloc, (1, 1), 1 << 63), (alloc, (1, 1), 1 << 40)])
    check(f"more bytes than there are: {sorted(found)}", found <= {"ENOSPC", "EDQUOT"})

    refused("a storage id of a node that there is not", "ENXIO", *((opened, node, va, length, nr, gen, secret) for node in NODES))
    refused("of a region's number that there is not", "ESTALE",
            *((opened, (1, 1), va, length, wrong, gen, secret) for wrong in (nr ^ 1 << 31, nr + 5000, MOST, 1 << 31, 4096, 65536 + nr)))
    refused("of another generation", "ESTALE",
            *((opened, (1, 1), va, length, nr, wrong, secret) for wrong in (gen ^ 1, gen ^ 1 << 31, gen + 1 & MOST or 2)))
    refused("of no generation", "EINVAL", (opened, (1, 1), va, length, nr, 0, secret))
    refused("of the other node", "ESTALE", (opened, (1, 2), va, length, nr, gen, secret))
    refused("with a wrong secret", "EACCES", *((opened, (1, 1), va, length, nr, gen, secret ^ 1 << bit) for bit in (0, 31, 32, 63)))
    refused("of bytes behind the region", "ERANGE", (opened, (1, 1), va, length + 1, nr, gen, secret), (opened, (1, 1), va + 1, length, nr, gen, secret),
            (opened, (1, 1), va + length + 1, 0, nr, gen, secret), (opened, (1, 1), 1 << 63, length, nr, gen, secret))
    refused("of bytes behind the last address", "EINVAL", (opened, (1, 1), MOST64, 1, nr, gen, secret), (opened, (1, 1), 1, MOST64, nr, gen, secret))

    def key(rights, off, length, number=KEY, of=(0, 0, 0)):
        return call(region, number, "<IIQQIIIIQ", rights, 0, off, length, 0, 0, *of)

    refused("a key for bytes behind the region", "ERANGE", (key, 1, SIZE, 1), (key, 1, MOST64, 1), (key, 1, 1, MOST64), (key, 1, 0, SIZE + 1), (key, 1, 1 << 63, 1))
    refused("a key with unknown rights", "EINVAL", (key, 16, 0, 1), (key, MOST, 0, 1))
    refused("the end of a key of another region", "EINVAL",
            *((key, 0, 0, 0, UNKEY, of) for of in ((nr + 5000, gen, secret), (MOST, gen, secret), (nr, gen ^ 1, secret))))
    refused("the end of a key that there is not", "ESTALE", (key, 0, 0, 0, UNKEY, (nr, gen, secret ^ 1)))

    program = bytearray(PAGE)
    at = ctypes.addressof(ctypes.c_char.from_buffer(program))
    for name, entries in (
        ("a queued read", [entry(READ, region, off, at, PAGE, k) for k, off in enumerate((SIZE + 1, 1 << 63, MOST64))]),
        ("a queued copy from there", [entry(COPY, region, 0, off, PAGE, k, region) for k, off in enumerate((SIZE, 1 << 63, MOST64))]),
        ("a queued copy to there", [entry(COPY, region, off, 0, PAGE, k, region) for k, off in enumerate((SIZE, 1 << 63, MOST64))]),
    ):
        found = result(one, *entries)
        check(f"{name} that no region has: {sorted(set(found))}", set(found) == {"ERANGE"})
    check("a cancel of no operation's number", result(one, *(entry(CANCEL, 0, 0, k, 0, 50 + k) for k in range(2))) == ["ENOENT"] * 2)

    check(f"all is as it was: {before}", becomes(state, before) == before)
    check("the region has the same keys", keys_of(region) == keys)
    check("and the same bytes", os.pread(region, SIZE, 0) == text)


def administrator():
    region, _ = whole_alloc((1, 1), SIZE)
    before = state()

    def of_node(nr, layout):
        return lambda node, *rest: call(device, nr, layout, *node, *rest)

    drain, free = of_node(DRAIN, "<IIIIQQ"), of_node(FREE, "<IIIIQQ")
    # Domain 0 is the host's own: no node 0 or 99 there either.
    refused("the drain of a node that is not served", "ENXIO", *((drain, node, 0, 0, 0, 0) for node in (*NODES, (1, 2))))
    refused("the free of a region of such a node", "ENXIO", *((free, node, 0, 1, 0, 0) for node in (*NODES, (1, 2))))
    refused("of a region's number that there is not", "ESTALE",
            *((free, (1, 1), nr, gen, 0, 0) for nr in (5000, 1 << 31, MOST, 65536) for gen in (0, 1, MOST)))
    refused("of another generation", "ESTALE", *((free, (1, 1), nr, gen, 0, 0) for nr in range(3) for gen in (0, 1, MOST)))

    def listed(cursor):
        return call(device, REGION, "<QIIQIIIIIIQQQQ", cursor, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)

    refused("the list of regions behind its end", "ENOENT", *((listed, cursor) for cursor in (MOST64, 16 << 32, 1 << 63, MOST)))

    def directory(op, node):
        return call(device, DIRECTORY, "<QII16sIIIIQQ", 0, *node, b"", 0, op, 0, 0, 0, 0)

    refused("the removal of a node that the directory has not", "ENOENT", *((directory, 2, node) for node in NODES if node[0]))
    refused("an unknown operation of the directory", "EINVAL", *((directory, op, (1, 1)) for op in (5, 1 << 31, MOST)))

    def serve(node, memfd, offset, length):
        return call(device, SERVE, "<IIiIQQ16sIIQQ", *node, memfd, 1, offset, length, b"", 0, 0, 0, 0)

    memfd = os.memfd_create("node")
    os.ftruncate(memfd, SIZE)
    for name, want, calls in (
        ("a node of memory that there is not", "EBADF", [(serve, (1, 50), fd, 0, SIZE) for fd in (-1, 1 << 20, -(1 << 31))]),
        ("one of no bytes, or of a part of a page", "EINVAL", [(serve, (1, 50), memfd, 0, n) for n in (0, 1, PAGE + 1)]),
        ("one behind the memory's end", "EINVAL", [(serve, (1, 50), memfd, off, n) for off, n in ((SIZE, PAGE), (0, SIZE + PAGE), (MOST64 - PAGE + 1, PAGE))]),
    ):
        found = errors(calls)
        check(f"{name}: {want}" + ("" if found == {want} else f", not {found}"), found == {want})
    os.close(memfd)
    check(f"all is as it was: {before}", becomes(state, before) == before)
    check("the region is still there", os.pread(region, 5, 0) == bytes(5))


{"user": user, "administrator": administrator}[sys.argv[1]]()
