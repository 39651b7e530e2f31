"""The queue as libzrs has it: zrs_mem_queue(), zrs_mem_submit(), zrs_mem_reap().
  queue_c.py LIBRARY    (nodes 1:1 and 1:2)
"""
import ctypes
import errno
import os
import select
import sys
import time

C = ctypes
lib = C.CDLL(sys.argv[1], use_errno=True)
COPY, WRITE, READ, CANCEL, DRAIN = 1, 2, 3, 4, 1
SIZE = 2 << 20


class Request(C.Structure):
    _fields_ = [("domain", C.c_uint32), ("node", C.c_uint32), ("len", C.c_uint64), ("va", C.c_uint64),
                ("flags", C.c_uint32), ("ttl_ms", C.c_uint32), ("admission", C.c_uint8 * 16)]


class Op(C.Structure):
    _fields_ = [("op", C.c_uint8), ("flags", C.c_uint8), ("reserved0", C.c_uint16), ("region", C.c_int32),
                ("src", C.c_int32), ("reserved1", C.c_uint32), ("off", C.c_uint64), ("at", C.c_uint64),
                ("len", C.c_uint64), ("id", C.c_uint64), ("reserved2", C.c_uint64 * 2)]


class Done(C.Structure):
    _fields_ = [("id", C.c_uint64), ("result", C.c_int64), ("landed", C.c_uint64), ("flags", C.c_uint32),
                ("reserved", C.c_uint32)]


def check(name, ok):
    print(("ok - " if ok else "not ok - ") + name, flush=True)


def fails(name, number, result):
    check(name, result == -1 and C.get_errno() == number)


def alloc(node):
    storage = C.create_string_buffer(64)
    region = lib.zrs_mem_alloc(C.byref(Request(domain=1, node=node, len=SIZE)), storage)
    assert region >= 0, os.strerror(C.get_errno())
    return region


def submit(queue, *ops):
    return lib.zrs_mem_submit(queue, (Op * len(ops))(*ops), len(ops))


def reap(queue, count, timeout):
    done = (Done * count)()
    n = lib.zrs_mem_reap(queue, done, count, timeout)
    return n if n < 0 else [(d.id, d.result, d.landed) for d in done[:n]]


one, two = alloc(1), alloc(2)
data = os.urandom(SIZE)
source, back = C.create_string_buffer(data, SIZE), C.create_string_buffer(SIZE)
queue = lib.zrs_mem_queue(4)
check("a queue", queue >= 0)
check("which exec() closes", not os.get_inheritable(queue))
fails("one of no entries", errno.EINVAL, lib.zrs_mem_queue(0))
fails("one of too many", errno.EINVAL, lib.zrs_mem_queue(4097))

began = time.monotonic()
check("nothing to take", reap(queue, 4, 0) == [])
check("nothing in that time", reap(queue, 4, 300) == [] and time.monotonic() - began >= 0.3)
chain = [Op(op=WRITE, region=one, at=C.addressof(source), len=SIZE, id=5),
         Op(op=COPY, flags=DRAIN, region=two, src=one, len=SIZE, id=6),
         Op(op=READ, flags=DRAIN, region=two, at=C.addressof(back), len=SIZE, id=7)]
check("three operations", submit(queue, *chain) == 3)
done = []
while len(done) < 3:
    done += reap(queue, 2, -1)
check("their completions", done == [(5, SIZE, SIZE), (6, SIZE, SIZE), (7, SIZE, SIZE)])
check("what is read is what was written", back.raw == data)

read = Op(op=READ, region=one, at=C.addressof(back), len=4096, id=1)
check("four of six have room", submit(queue, *[read] * 6) == 4)
fails("no more do", errno.EAGAIN, submit(queue, read))
poll = select.poll()
poll.register(queue, select.POLLIN | select.POLLOUT)
check("poll tells of a completion", select.select([queue], [], [], 30)[0] == [queue])
check("one is taken", len(reap(queue, 1, -1)) == 1)
check("which makes room", poll.poll(0)[0][1] & select.POLLOUT != 0 and submit(queue, read) == 1)
done = []
while len(done) < 4:
    done += reap(queue, 4, -1)
check("the rest", done == [(1, 4096, 4096)] * 4)

check("no such operation", submit(queue, Op(op=CANCEL, at=77, id=2)) == 1 and reap(queue, 4, -1)[0][:2] == (2, -errno.ENOENT))
check("a write beyond the end", submit(queue, Op(op=WRITE, region=one, off=SIZE - 1, at=C.addressof(source), len=2)) == 1 and
      reap(queue, 4, -1)[0][1] == -errno.ERANGE)
fails("an unknown operation", errno.EINVAL, submit(queue, Op(op=9, region=one, len=1)))
fails("no region", errno.EBADF, submit(queue, Op(op=READ, region=queue, at=C.addressof(back), len=1)))
fails("memory that is not there", errno.EFAULT, submit(queue, Op(op=WRITE, region=one, at=4096, len=1)))
fails("operations that are not there", errno.EFAULT, lib.zrs_mem_submit(queue, None, 1))
check("no operations", lib.zrs_mem_submit(queue, None, 0) == 0)
fails("a region is no queue", errno.ENOTTY, submit(one, read))
fails("room for no completion", errno.EINVAL, lib.zrs_mem_reap(queue, (Done * 1)(), 0, 0))

# Drained behind a copy, so that it waits when the cancel comes.
submit(queue, Op(op=COPY, region=two, src=one, len=SIZE, id=1),
       Op(op=READ, flags=DRAIN, region=one, at=C.addressof(back), len=SIZE, id=2), Op(op=CANCEL, at=2, id=3))
done = {}
while len(done) < 3:
    done |= {name: result for name, result, _ in reap(queue, 4, -1)}
check(f"cancel: {done}", done[1] == SIZE and (done[2], done[3]) in ((-errno.ECANCELED, 0), (SIZE, -errno.ENOENT)))
