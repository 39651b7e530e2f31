#!/usr/bin/python3
"""io_uring and libaio on a region: several reads and writes at a time, which do not wait when they are submitted.
  async.py NODE [PORT]    (number of the node in domain 1; PORT: the port of its host at the bridge, to be cut)
"""
import ctypes
import errno
import fcntl
import mmap
import os
import resource
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import uring  # noqa: E402

SIZE = 8 << 20
ALLOC = 3 << 30 | 96 << 16 | 0xE7 << 8 | 0x12
READ, WRITE = 22, 23
PREAD, PWRITE = 0, 1
SETUP, DESTROY, GETEVENTS, SUBMIT = 206, 207, 208, 209
node = int(sys.argv[1])
slow = os.environ.get("TIME_SCALE", "1") != "1"


def check(name, ok):
    print(("ok - " if ok else "not ok - ") + name, flush=True)


def alloc():
    request = struct.pack("<IIQQII16s32s16s", 1, node, SIZE, 0, 0, 0, b"", b"", b"")
    return fcntl.ioctl(os.open("/dev/zrs", os.O_RDWR), ALLOC, bytearray(request))


class Aio:
    def __init__(self):
        self.context = ctypes.c_ulong()
        uring.called(SETUP, 64, ctypes.byref(self.context))

    def submit(self, *calls):
        """Each call: operation, region, address, length, offset, name."""
        self.blocks = getattr(self, "blocks", [])
        new = [ctypes.create_string_buffer(struct.pack("<QIiHhIQQqQII", name, 0, 0, op, 0, fd, at, length, off, 0, 0, 0))
               for op, fd, at, length, off, name in calls]
        self.blocks += new
        pointers = (ctypes.c_void_p * len(new))(*(ctypes.addressof(block) for block in new))
        return uring.called(SUBMIT, self.context, len(new), pointers)

    def events(self, least, most, seconds=None):
        memory = ctypes.create_string_buffer(32 * most)
        limit = ctypes.create_string_buffer(struct.pack("<qq", int(seconds or 0), 0))
        got = uring.called(GETEVENTS, self.context, least, most, memory, limit if seconds is not None else None)
        return {name: res for name, _, res, _ in struct.iter_unpack("<QQqq", memory.raw[:32 * got])}


region = alloc()
memory = mmap.mmap(-1, SIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
data = os.urandom(SIZE)
PARTS = ((0, 1), (4096, 4096), (9000, 4097), (100001, 70000), (1 << 20, 1 << 20), (3 << 20, 3 << 20), (7 << 20, 300001))


def expected(blank=bytes(SIZE)):
    """What the region has when all parts were written."""
    whole = bytearray(blank)
    for at, length in PARTS:
        whole[at:at + length] = data[at:at + length]
    return bytes(whole)


# io_uring.
ring = uring.Ring()
memory[:] = data
for at, length in PARTS:
    ring.submit(WRITE, region, at, length, addr=address + at)
done = sorted(ring.next()[0] for _ in PARTS)
check("io_uring writes", done == sorted(length for _, length in PARTS))
check("and they are there", os.pread(region, SIZE, 0) == expected())
memory[:] = bytes(SIZE)
for at, length in PARTS:
    ring.submit(READ, region, at, length, addr=address + at)
done = sorted(ring.next()[0] for _ in PARTS)
check("io_uring reads", done == sorted(length for _, length in PARTS) and memory[:] == expected())
ring.submit(READ, region, SIZE - 100, 4096, addr=address)
check("a read is cut short at the end", ring.next()[0] == 100)
ring.submit(READ, region, SIZE, 4096, addr=address)
check("and gives 0 there", ring.next()[0] == 0)
ring.submit(WRITE, region, SIZE, 4096, addr=address)
check("a write there is refused", ring.next()[0] == -errno.ENOSPC)
ring.submit(READ, region, 0, 10000, addr=4096)
check("memory that is not there", ring.next()[0] == -errno.EFAULT)

# libaio.
aio = Aio()
os.pwrite(region, bytes(SIZE), 0)
memory[:] = data
check("libaio takes all of them", aio.submit(*((PWRITE, region, address + at, length, at, n)
                                              for n, (at, length) in enumerate(PARTS))) == len(PARTS))
done = aio.events(len(PARTS), len(PARTS))
check("writes", done == {n: length for n, (_, length) in enumerate(PARTS)})
check("which are there", os.pread(region, SIZE, 0) == expected())
memory[:] = bytes(SIZE)
aio.submit(*((PREAD, region, address + at, length, at, n) for n, (at, length) in enumerate(PARTS)))
done = aio.events(len(PARTS), len(PARTS))
check("reads", done == {n: length for n, (_, length) in enumerate(PARTS)} and memory[:] == expected())
aio.submit((PREAD, region, address, 4096, SIZE, 1))
check("at the end", aio.events(1, 1) == {1: 0})

# A submission does not wait for the node.
if len(sys.argv) > 2:
    cut = ["bridge", "-n", "zrsL", "link", "set", "dev", sys.argv[2], "state"]
    memory[:] = data
    subprocess.run([*cut, "0"], check=True)
    before = time.monotonic()
    aio.submit((PWRITE, region, address, 2 << 20, 0, 1), (PREAD, region, address + (4 << 20), 2 << 20, 4 << 20, 2))
    early = aio.events(0, 2, 0)
    subprocess.run([*cut, "3"], check=True)
    check("a submission does not wait for the node", early == {})
    done = aio.events(2, 2)
    print(f"# completed after {time.monotonic() - before:.1f} s: {done}")
    ends = {2 << 20, -errno.ECONNRESET} if slow else {2 << 20}
    check("and completes when that is back", set(done) == {1, 2} and set(done.values()) <= ends)

# A user that may lock no memory: such calls wait, and work.
os.pwrite(region, bytes(SIZE), 0)
child = os.fork()
if child == 0:
    os.setgid(65534)
    os.setuid(65534)
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
    own = mmap.mmap(-1, 1 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    own[:] = data[:1 << 20]
    mine = Aio()
    mine.submit((PWRITE, region, ctypes.addressof(ctypes.c_char.from_buffer(own)), 1 << 20, 0, 1))
    os._exit(mine.events(1, 1) != {1: 1 << 20})
check("beyond RLIMIT_MEMLOCK, too", os.waitpid(child, 0)[1] == 0 and os.pread(region, 1 << 20, 0) == data[:1 << 20])

# The region ends with work under way.
memory[:] = data
aio.submit(*((PWRITE, region, address, 4 << 20, 0, n) for n in range(4)))
before = time.monotonic()
fcntl.ioctl(region, 0xE7 << 8 | 0x54)
took = time.monotonic() - before
done = aio.events(4, 4)
print(f"# a free under load took {took:.1f} s: {done}")
# A write that the free met in its middle tells how many bytes were written. The node waits 2 s for what is under way,
# then it ends the link.
ends = {-errno.ESTALE} | ({-errno.ECONNRESET} if took >= 2 else set())
check("a free under load", all(0 < n <= 4 << 20 or n in ends for n in done.values()))

# So does the process: the pages are given back.
again = alloc()
child = os.fork()
if child == 0:
    own = mmap.mmap(-1, 4 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    Aio().submit((PWRITE, again, ctypes.addressof(ctypes.c_char.from_buffer(own)), 4 << 20, 0, 1))
    os._exit(0)
check("the end of a process with work under way", os.waitpid(child, 0)[1] == 0)
