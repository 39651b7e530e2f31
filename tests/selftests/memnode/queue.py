#!/usr/bin/python3
"""The queue descriptor: copies, writes and reads of all sizes, order, limits, cancel, close, and what
is refused.
  queue.py STORAGE-ID    (of a region of node 1:1 that may be written, but gives no keys)
"""
import ctypes
import errno
import fcntl
import os
import resource
import select
import struct
import sys
import time

sys.path.insert(0, "/zrs/userspace/examples")
from zrs_mem import opened
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from hosts import PATIENCE

NODES = ((1, 1), (1, 2))


def ioctl_number(direction, number, size):
    return direction << 30 | size << 16 | 0xE7 << 8 | number


ALLOC = ioctl_number(3, 0x12, 96)
QUEUE = ioctl_number(1, 0x14, 16)
SUBMIT = ioctl_number(1, 0x58, 16)
FREE = ioctl_number(0, 0x54, 0)
COPY, WRITE, READ, CANCEL = 1, 2, 3, 4
DRAIN = 1
device = os.open("/dev/zrs", os.O_RDWR)


def alloc(node, length):
    request = bytearray(struct.pack("<IIQQII16s32s16s", *node, length, 0, 0, 0, b"", b"", b""))
    return fcntl.ioctl(device, ALLOC, request)


def queue(entries, flags=0):
    return fcntl.ioctl(device, QUEUE, bytearray(struct.pack("<IIQ", entries, flags, 0)))


def sqe(op, fd, off, src, length, name, src_fd=0, flags=0, reserved=0):
    return struct.pack("<BBHiiIQQQQQQ", op, flags, reserved, fd, src_fd, 0, off, src, length, name, 0, 0)


def submit(q, *sqes):
    memory = ctypes.create_string_buffer(b"".join(sqes))
    request = struct.pack("<QII", ctypes.addressof(memory), len(sqes), 0)
    return fcntl.ioctl(q, SUBMIT, bytearray(request))


def completions(q, count):
    """Waits for that many: {name: (res, done)}, and their order."""
    done, order = {}, []
    while len(order) < count:
        for name, res, landed, flags, zero in struct.iter_unpack("<QqQII", os.read(q, 32 * count)):
            done[name] = (res, landed)
            order.append(name)
    return done, order


def one(q, *args, **kwargs):
    assert submit(q, sqe(*args, name=9, **kwargs)) == 1
    return completions(q, 1)[0][9][0]


def check(name, ok):
    print(("ok - " if ok else "not ok - ") + name, flush=True)


def refused(name, number, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
        check(name + ": nothing was refused", False)
    except OSError as e:
        check(f"{name}: {e.strerror}", e.errno == number)


class Buffer:
    def __init__(self, data):
        self.memory = ctypes.create_string_buffer(data, len(data))
        self.at = ctypes.addressof(self.memory)

    def bytes(self):
        return self.memory.raw


SIZE = 6 << 20
one_fd, two_fd = alloc(NODES[0], SIZE), alloc(NODES[1], SIZE)
writable = opened(sys.argv[1])
data = os.urandom(SIZE)
q = queue(256)

# WRITE and READ.
source, back = Buffer(data), Buffer(bytes(SIZE))
for length, off in ((1, 5), (4096, 4095), (4097, 1), (300001, 77), (SIZE, 0)):
    wrote = one(q, WRITE, one_fd, off, source.at, length)
    read = one(q, READ, one_fd, off, back.at + 3 if length < SIZE else back.at, length)
    got = back.bytes()[3:3 + length] if length < SIZE else back.bytes()
    check(f"WRITE and READ of {length} bytes at {off}", (wrote, read) == (length, length) and got == data[:length])
check("a READ is cut short at the end", one(q, READ, one_fd, SIZE - 10, back.at, 100) == 10)
check("a WRITE beyond it is refused", one(q, WRITE, one_fd, SIZE - 10, source.at, 100) == -errno.ERANGE)

# COPY: many at a time.
count, part = 96, 65536
sqes = [sqe(COPY, two_fd, n * part, n * part, part, n, src_fd=one_fd) for n in range(count)]
before = time.monotonic()
taken = submit(q, *sqes)
submitted = time.monotonic() - before
done, order = completions(q, count)
check("96 copies are taken by one call", taken == count)
check("and all of them complete", all(done[n] == (part, part) for n in range(count)))
check("and are right", os.pread(two_fd, SIZE, 0) == data)
check("a copy within a node's host", one(q, COPY, one_fd, 1 << 20, 0, 100000, src_fd=one_fd) == 100000)
check("which is right", os.pread(one_fd, 100000, 1 << 20) == data[:100000])
check("ranges that overlap", one(q, COPY, one_fd, 1, 0, 5000, src_fd=one_fd) == -errno.EINVAL)
check("a COPY is cut short at the source's end", one(q, COPY, two_fd, 0, SIZE - 7, 100, src_fd=one_fd) == 7)
check("one from beyond it", one(q, COPY, two_fd, 0, SIZE, 100, src_fd=one_fd) == -errno.ERANGE)
check("one to beyond the target's end", one(q, COPY, two_fd, SIZE - 5, 0, 100, src_fd=one_fd) == -errno.ERANGE)

# A read() with room for one leaves the other, and poll() says so.
submit(q, *(sqe(WRITE, one_fd, 0, source.at, 10, n) for n in range(2)))
late = time.monotonic() + 20 * PATIENCE
first = completions(q, 1)[0]
while not select.select([q], [], [], 0)[0] and time.monotonic() < late:
    time.sleep(0.01)
check("poll() says that there is another completion", select.select([q], [], [], 0)[0] == [q])
rest = completions(q, 1)[0]
check("which read() gives", sorted([*first, *rest]) == [0, 1])

# A read() that faults leaves its completion to the next one, and poll() says so.
submit(q, sqe(WRITE, one_fd, 0, source.at, 10, 3))
select.select([q], [], [], 20 * PATIENCE)
libc = ctypes.CDLL(None, use_errno=True)
fault = libc.read(q, ctypes.c_void_p(8), 32), ctypes.get_errno()
check("a read() to no memory is EFAULT", fault == (-1, errno.EFAULT))
check("poll() says that its completion is there", select.select([q], [], [], 0)[0] == [q])
check("which read() gives then", [*completions(q, 1)[0]] == [3])

# Drain: the one with it sees all that came before, and those behind it see it.
sqes = [sqe(WRITE, one_fd, n << 20, source.at + (n << 20), 1 << 20, n) for n in range(6)]
sqes.append(sqe(COPY, two_fd, 0, 0, SIZE, 100, src_fd=one_fd, flags=DRAIN))
sqes.append(sqe(READ, two_fd, 0, back.at, SIZE, 101, flags=DRAIN))
ctypes.memset(back.at, 0, SIZE)
submit(q, *sqes)
done, order = completions(q, 8)
check("drain orders", order[6:] == [100, 101] and back.bytes() == data)

# poll and epoll.
poller, poll = select.epoll(), select.poll()
poller.register(q, select.EPOLLIN)
poll.register(q, select.POLLIN | select.POLLOUT)
check("without a completion", poller.poll(0) == [] and poll.poll(0) == [(q, select.POLLOUT)])
os.set_blocking(q, False)
refused("a read that does not wait", errno.EAGAIN, os.read, q, 32)
submit(q, sqe(READ, one_fd, 0, back.at, 4096, 1))
check("epoll tells of a completion", poller.poll(10) == [(q, select.EPOLLIN)])
os.set_blocking(q, True)
completions(q, 1)
check("and not after it was taken", poller.poll(0) == [])

# Limits.
small = queue(4)
sqes = [sqe(READ, one_fd, 0, back.at, 4096, n) for n in range(6)]
check("what is beyond the entries is not taken", submit(small, *sqes) == 4)
refused("a full queue", errno.EAGAIN, submit, small, sqes[0])
poll = select.poll()
poll.register(small, select.POLLOUT)
check("has no POLLOUT", poll.poll(0) == [])
completions(small, 1)
check("until a completion is taken", poll.poll(0) == [(small, select.POLLOUT)])
check("and takes one then", submit(small, sqes[5]) == 1)
completions(small, 4)
os.close(small)
if os.geteuid() == 0:
    large, most = queue(4096), 4096
    sqes = [sqe(READ, one_fd, n, back.at + n, 1, n) for n in range(most)]
    check("the largest queue takes all", submit(large, *sqes) == most)
    refused("and no more", errno.EAGAIN, submit, large, sqes[0])
    done, _ = completions(large, most)
    right = all(res == (1, 1) for res in done.values()) and back.bytes()[:most] == data[:most]
    check("each is done", len(done) == most and right)
    os.close(large)

# Refused.
refused("a queue of no entries", errno.EINVAL, queue, 0)
refused("a queue of too many", errno.EINVAL, queue, 4097)
refused("flags of a queue", errno.EINVAL, queue, 1, 1)
refused("an unknown operation", errno.EINVAL, submit, q, sqe(5, one_fd, 0, 0, 1, 1))
refused("an unknown flag", errno.EINVAL, submit, q, sqe(READ, one_fd, 0, back.at, 1, 1, flags=2))
refused("a reserved field", errno.EINVAL, submit, q, sqe(READ, one_fd, 0, back.at, 1, 1, reserved=1))
refused("no bytes", errno.EINVAL, submit, q, sqe(READ, one_fd, 0, back.at, 0, 1))
refused("too many bytes", errno.EINVAL, submit, q, sqe(COPY, two_fd, 0, 0, (1 << 30) + 1, 1, src_fd=one_fd))
refused("no region", errno.EBADF, submit, q, sqe(READ, device, 0, back.at, 1, 1))
refused("no descriptor", errno.EBADF, submit, q, sqe(COPY, two_fd, 0, 0, 1, 1, src_fd=999))
refused("memory that is not there", errno.EFAULT, submit, q, sqe(WRITE, one_fd, 0, 4096, 10000, 1))
bad = sqe(READ, device, 0, back.at, 1, 1)
check("those before it are taken", submit(q, sqe(READ, one_fd, 0, back.at, 1, 1), bad) == 1)
completions(q, 1)
resource.setrlimit(resource.RLIMIT_MEMLOCK, (1 << 20, resource.RLIM_INFINITY))
if os.geteuid() != 0:
    refused("more than may be locked", errno.ENOMEM, submit, q, sqe(WRITE, one_fd, 0, source.at, SIZE, 1))
refused("an unknown call", errno.ENOTTY, fcntl.ioctl, q, FREE)
refused("a read of half a completion", errno.EINVAL, os.read, q, 16)

# Cancel: nothing lands behind its completion.
check("no such operation", one(q, CANCEL, 0, 0, 77, 0) == -errno.ENOENT)
os.pwrite(two_fd, bytes(SIZE), 0)
canceled = 0
# On a slow kernel a peer may need longer than it has to give a grant back: then its link is ended.
LOST = {-errno.ECONNRESET} if os.environ.get("TIME_SCALE", "1") != "1" else set()


def lost(begin):
    """The same of what has taken the time that a peer has."""
    return {-errno.ECONNRESET} if time.monotonic() - begin >= 2 else LOST


for n in range(4):
    sqes = [sqe(COPY, two_fd, 0, 0, SIZE, n, src_fd=one_fd) for n in range(3)]
    sqes += [sqe(WRITE, two_fd, 0, source.at, SIZE, 3), sqe(READ, one_fd, 0, back.at, SIZE, 4)]
    begin = time.monotonic()
    submit(q, *sqes)
    time.sleep(0.02 * n)
    submit(q, *(sqe(CANCEL, 0, 0, n, 0, 10 + n) for n in range(5)))
    done, order = completions(q, 10)
    canceled += sum(done[n][0] == -errno.ECANCELED for n in range(5))
    ends = {SIZE, -errno.ECANCELED} | lost(begin)
    good = all(done[n][0] in ends for n in range(5))
    good = good and all(done[10 + n][0] in (0, -errno.ENOENT) for n in range(5))
    # Of those that have completed before them.
    good = good and all(order.index(n) < order.index(10 + n) for n in range(5))
    read = back.bytes()
    ctypes.memset(back.at, 0, SIZE)
    os.pwrite(two_fd, bytes(SIZE), 0)
    time.sleep(0.05)
    if not good or any(os.pread(two_fd, SIZE, 0)) or any(back.bytes()):
        check(f"cancel, round {n}: {done} {order}", False)
check("cancel: nothing lands after it", canceled > 0)
print(f"# {canceled} of 20 were canceled")

# Freed and revoked under load.
victim, begin = alloc(NODES[1], SIZE), time.monotonic()
submit(q, *(sqe(COPY, victim, 0, 0, SIZE, n, src_fd=one_fd) for n in range(4)))
fcntl.ioctl(victim, FREE)
done, _ = completions(q, 4)
check("a target that is freed", all(res in {SIZE, -errno.ESTALE} | lost(begin) for res, _ in done.values()))
check("and a bystander goes on", one(q, COPY, two_fd, 0, 0, SIZE, src_fd=one_fd) == SIZE)
check("a descriptor that gives no keys", one(q, COPY, writable, 0, 0, 4096, src_fd=two_fd) == 4096)

# Closed with work under way.
other, begin = queue(64), time.monotonic()
submit(other, *(sqe(WRITE, one_fd, 0, source.at, SIZE, n) for n in range(8)))
os.close(other)
res = one(q, READ, one_fd, 0, back.at, 4096)
check(f"the other queue goes on: {res}", res in {4096} | lost(begin))
