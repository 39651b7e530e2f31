#!/usr/bin/python3
"""File calls on regions of memory nodes: sizes, positions, vectors, copies, and what is refused.
  files.py STORAGE-ID    (of a region that it may write, of at least 4 MiB)
"""
import ctypes
import errno
import fcntl
import json
import mmap
import os
import struct
import tempfile
import time

NODES = ((1, 1), (1, 2))
PATIENCE = int(os.environ.get("TIME_SCALE", "1")) * int(os.environ.get("LIMIT_SCALE", "1"))


def ioctl_number(direction, number, size):
    return direction << 30 | size << 16 | 0xE7 << 8 | number


ALLOC = ioctl_number(3, 0x12, 96)
OPEN = ioctl_number(1, 0x13, 56)
device = os.open("/dev/zrs", os.O_RDWR)


def alloc(node, length):
    request = bytearray(struct.pack("<IIQQII16s32s16s", *node, length, 0, 0, 0, b"", b"", b""))
    return fcntl.ioctl(device, ALLOC, request), bytes(request[48:80])


def opened(node, storage):
    return fcntl.ioctl(device, OPEN, bytearray(struct.pack("<II32s16s", *node, storage, b"")))


def check(name, ok):
    print(("ok - " if ok else "not ok - ") + name, flush=True)


def refused(name, number, call, *args):
    try:
        call(*args)
        check(name + ": nothing was refused", False)
    except OSError as e:
        check(f"{name}: {e.strerror}", e.errno == number)


SIZE = 4 << 20
one, _ = alloc(NODES[0], SIZE)
two, id_two = alloc(NODES[1], SIZE)
check("a new region is zero", os.pread(one, 1 << 20, 12345) == bytes(1 << 20))
check("fstat tells its size", os.fstat(one).st_size == SIZE)
check("lseek finds its end", os.lseek(one, 0, os.SEEK_END) == SIZE)
data = os.urandom(SIZE)
for length, at in ((1, 7), (4095, 1), (4096, 0), (4097, 4095), (262143, 100), (262145, 3), (1 << 20, 4097)):
    wrote = os.pwrite(one, data[:length], at)
    check(f"{length} bytes at {at}", wrote == length and os.pread(one, length, at) == data[:length])


def sent():
    """Packets that this host has sent."""
    with open("/proc/net/dev", encoding="ascii") as table:
        return sum(int(line.split()[10]) for line in table if line.split()[0] == "va:")


def packets(reads):
    """Packets that it sends for each of so many reads of 4096 bytes."""
    before = sent()
    right = all(os.pread(one, 4096, 4096 * n) == data[4096 * n:4096 * n + 4096] for n in range(reads))
    return right, (sent() - before) / reads


def grants_held():
    """Grants that this host has of nodes: an unused one goes after 10 s."""
    with os.popen("zrs stats --json") as stats:
        return json.load(stats)["mem_grants_held"]


os.pwrite(one, data, 0)
late = time.monotonic() + 20 * PATIENCE
while grants_held() and time.monotonic() < late:
    time.sleep(0.5)
right, some = packets(8)
check(f"small reads after a pause are by messages ({some:.2f} packets)", right and some > 1.5)
os.pread(one, 4096, 0)
right, more = packets(200)
check(f"more of them are READs, of one packet each ({more:.2f})", right and more < 1.2)
parts = [data[:5000], data[5000:5001], data[5001:300000]]
check("pwritev", os.pwritev(one, parts, 77) == 300000)
into = [bytearray(100), bytearray(299900)]
check("preadv", os.preadv(one, into, 77) == 300000 and b"".join(into) == data[:300000])
check("the whole region", os.pwrite(one, data, 0) == SIZE and os.pread(one, SIZE, 0) == data)
check("copy_file_range to another node", os.copy_file_range(one, two, SIZE, 0, 0) == SIZE)
check("which has it", os.pread(two, SIZE, 0) == data)
check("of a part, at other places", os.copy_file_range(one, two, 100001, 4099, 65) == 100001)
check("which are right", os.pread(two, 100001, 65) == data[4099:104100])
check("shortened at the source's end", os.copy_file_range(one, two, SIZE, SIZE - 10, 0) == 10)
check("within a node", os.copy_file_range(one, one, 5000, 0, 1 << 20) == 5000)
check("which is right, too", os.pread(one, 5000, 1 << 20) == data[:5000])
check("a read at the end", os.pread(one, 10, SIZE) == b"")
refused("a write at the end", errno.ENOSPC, os.pwrite, one, b"x", SIZE)
refused("ftruncate", errno.EINVAL, os.ftruncate, one, 5)
refused("ranges that overlap", errno.EINVAL, os.copy_file_range, one, one, 5000, 0, 100)
for call in (os.fsync, os.fdatasync):
    call(one)
    check(f"{call.__name__}: its writes are acknowledged already", True)
refused("mmap", errno.ENODEV, mmap.mmap, one, 4096)
libc = ctypes.CDLL(None, use_errno=True)


def fallocate(fd, length):
    if libc.fallocate(fd, 0, ctypes.c_long(0), ctypes.c_long(length)) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


refused("fallocate", errno.EOPNOTSUPP, fallocate, one, 4096)
refused("a write to the end by RWF_APPEND", errno.EINVAL, os.pwritev, one, [b"x"], 0, os.RWF_APPEND)
fcntl.fcntl(one, fcntl.F_SETFL, os.O_APPEND)
refused("a write with O_APPEND", errno.EINVAL, os.pwrite, one, b"x", 0)
fcntl.fcntl(one, fcntl.F_SETFL, 0)
check("and nothing is written", os.pread(one, 5000, 0) == data[:5000])
with tempfile.TemporaryFile() as other:
    other.write(data[:8192])
    other.flush()
    # Programs then read and write by themselves, as cp does.
    refused("copy_file_range to another file system", errno.EXDEV, os.copy_file_range, one, other.fileno(), 4096, 0, 0)
    refused("and from there", errno.EXDEV, os.copy_file_range, other.fileno(), one, 4096, 0, 0)
pipe = os.pipe()
check("splice", os.splice(one, pipe[1], 4096, offset_src=0) == 4096 and os.read(pipe[0], 4096) == data[:4096])
new = bytes(reversed(data[:4096]))
os.write(pipe[1], new)
check("and into a region", os.splice(pipe[0], one, 4096, offset_dst=8192) == 4096 and os.pread(one, 4096, 8192) == new)
with tempfile.TemporaryFile() as other:
    other.write(new)
    other.flush()
    os.lseek(one, 16384, os.SEEK_SET)
    sent = os.sendfile(one, other.fileno(), 0, 4096)
    check("sendfile into a region", sent == 4096 and os.pread(one, 4096, 16384) == new)
    other.seek(4096)
    sent = os.sendfile(other.fileno(), one, 8192, 4096)
    check("and from one", sent == 4096 and os.pread(other.fileno(), 8192, 0) == new + new)
again = opened(NODES[1], id_two)
check("a region by its storage id", os.pread(again, 1000, 200000) == data[200000:201000])
os.close(two)
# close() does not wait for the node, and a READ of before may still be right.
late = time.monotonic() + 20 * PATIENCE
while time.monotonic() < late:
    try:
        os.pread(again, 10, 0)
    except OSError:
        break
refused("after its owner has closed it", errno.ESTALE, os.pread, again, 10, 0)
os.close(one)
