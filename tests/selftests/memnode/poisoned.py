#!/usr/bin/python3
"""Pages of a node that the kernel knows as defective, as after a memory error.
  poisoned.py NODE    (number of the node in domain 1 that this host shall serve; hosts A and C have it in their directory)
"""
import ctypes
import errno
import fcntl
import mmap
import os
import struct
import sys
import time

sys.path.insert(0, "/zrs/userspace/examples")
from zrs_mem import alloc, free, opened
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from hosts import becomes, fails, host
from memqueue import COPY, READ, WRITE, completions, entry, queue, submit

SERVE, OPEN_TO_ALL = 1 << 30 | 72 << 16 | 0xE7 << 8 | 0x10, 1
SIZE, LENGTH, PAGE, BAD = 4 << 20, 65536, 4096, 8 * 4096
MADV_HWPOISON = 100
NODE = (1, int(sys.argv[1]))
libc = ctypes.CDLL(None, use_errno=True)
libc.madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int


def check(name, ok):
    print(("ok - " if ok else "not ok - ") + name, flush=True)


memfd = os.memfd_create("node")
os.ftruncate(memfd, SIZE)
memory = mmap.mmap(memfd, SIZE)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
node_fd = fcntl.ioctl(
    os.open("/dev/zrs", os.O_RDWR),
    SERVE,
    bytearray(struct.pack("<IIiIQQ16sIIQQ", *NODE, memfd, OPEN_TO_ALL, 0, SIZE, b"", 100, 0, 0, 0)),
)
poisoned = set()


def page_of(marker):
    """The page of the node's memory that begins with this; not the defective ones, which must not be touched."""
    for at in range(0, SIZE, PAGE):
        if at not in poisoned and memory[at:at + len(marker)] == marker:
            return at
    sys.exit("no such page")


def defective():
    """A region whose page at BAD the kernel has found to be defective: its descriptor and storage id."""
    region, text = alloc(NODE, LENGTH)
    marker = os.urandom(32)
    os.pwrite(region, b"a" * LENGTH, 0)
    os.pwrite(region, marker, BAD)
    at = page_of(marker)
    # The module has it pinned, so the kernel says EBUSY and has marked it.
    if libc.madvise(address + at, PAGE, MADV_HWPOISON) != 0 and ctypes.get_errno() not in (errno.EBUSY, errno.EIO):
        print(f"skip - defective pages: madvise(MADV_HWPOISON): {os.strerror(ctypes.get_errno())}", flush=True)
        sys.exit()
    poisoned.add(at)
    return region, text


with host("A"):
    far, untouched = (alloc((1, 2), LENGTH)[0] for _ in range(2))
    good = alloc(NODE, LENGTH)[0]
    queued = queue()
own_queue = queue()
here = alloc(NODE, LENGTH)[0]
# What the data would be if it was read.
for fd in far, untouched:
    os.pwrite(fd, b"b" * LENGTH, 0)
os.pwrite(good, b"g" * LENGTH, 0)
memory_of_program = ctypes.create_string_buffer(LENGTH)
at_program = ctypes.addressof(memory_of_program)


def result(of, *args):
    submit(of, entry(*args))
    return completions(of, 1)[1]


def whole(call):
    """The error of the call that reaches the page, which may be the second one, and the bytes before. A call that has
    reached it behind bytes that it moved gives their number, as by messages; the next one finds no region."""
    done = 0
    while done < LENGTH:
        try:
            n = call(done)
        except OSError as e:
            name = errno.errorcode[e.errno]
            return "EIO" if done and name == "ESTALE" else name, done
        if n == 0:
            break
        done += n
    return "no error", done


CASES = {
    "another host reads few bytes": lambda own, other: whole(lambda done: len(os.pread(other, 100, BAD))),
    "writes few bytes": lambda own, other: whole(lambda done: os.pwrite(other, b"c" * 100, BAD + 4000)),
    "reads all": lambda own, other: whole(lambda done: len(os.pread(other, LENGTH - done, done))),
    "writes all": lambda own, other: whole(lambda done: os.pwrite(other, b"c" * (LENGTH - done), done)),
    "copies from it": lambda own, other: whole(lambda done: os.copy_file_range(other, far, LENGTH - done, done, done)),
    "copies to it": lambda own, other: whole(lambda done: os.copy_file_range(far, other, LENGTH - done, done, done)),
    "its own host reads": lambda own, other: whole(lambda done: len(os.pread(own, LENGTH - done, done))),
    "its own host writes": lambda own, other: whole(lambda done: os.pwrite(own, b"c" * (LENGTH - done), done)),
    "its own host copies": lambda own, other: whole(lambda done: os.copy_file_range(own, here, LENGTH - done, done, done)),
}
QUEUED = {
    "a queue of another host reads": lambda own, other: result(queued, READ, other, 0, at_program, LENGTH, 1),
    "writes": lambda own, other: result(queued, WRITE, other, 0, at_program, LENGTH, 1),
    "copies": lambda own, other: result(queued, COPY, far, 0, 0, LENGTH, 1, other),
    "a queue of its own host reads": lambda own, other: result(own_queue, READ, own, 0, at_program, LENGTH, 1),
}
for name, case in (*CASES.items(), *QUEUED.items()):
    own, text = defective()
    with host("A"):
        other = opened(text)
    if name in CASES:
        error, done = case(own, other)
        check(f"a defective page: {name}: {error} after {done} bytes", error == "EIO" and done <= BAD)
    else:
        res, done = case(own, other)
        check(f"a defective page: {name}: {errno.errorcode.get(-res, res)}, {done} bytes", res == -errno.EIO and done <= BAD)
    check("its region has ended", [fails(os.pread, fd, 100, 0) for fd in (own, other)] == ["ESTALE"] * 2)
    for fd in own, other:
        os.close(fd)

# A program that had a remote key loses it, when the page is found.
own, text = defective()
os.close(own)
region, text = alloc(NODE, LENGTH)
with host("A"):
    other = opened(text)
os.pwrite(other, b"d" * LENGTH, 0)
marker = os.urandom(32)
os.pwrite(region, marker, BAD)
at = page_of(marker)
libc.madvise(address + at, PAGE, MADV_HWPOISON)
poisoned.add(at)
check("the node's host finds a page: EIO", fails(os.pread, region, 100, BAD) == "EIO")
check("a host with a remote key has it no more", becomes(lambda: fails(os.pread, other, LENGTH, 0), "ESTALE") == "ESTALE")
for fd in other, region:
    os.close(fd)

check("other regions go on", os.pread(good, LENGTH, 0) == b"g" * LENGTH and os.pread(untouched, LENGTH, 0) == b"b" * LENGTH)
for fd in good, here:
    os.close(fd)
# All but the defective pages come back, and are zero.
left = SIZE - PAGE * len(poisoned)
late = time.monotonic() + 20
while True:
    try:
        rest, _ = alloc(NODE, left)
        break
    except OSError as e:
        if time.monotonic() > late:
            sys.exit(f"the other pages: {e.strerror}")
        time.sleep(0.1)
check(f"all pages but {len(poisoned)} can be had", True)
check("and are zero", not any(os.pread(rest, left, 0)))
check("those are given to no region", fails(alloc, NODE, PAGE) in ("ENOSPC", "EAGAIN"))
free(rest)
