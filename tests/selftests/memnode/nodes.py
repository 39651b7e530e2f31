#!/usr/bin/python3
"""A host has 16 nodes and no more; one that is drained tells so.
  nodes.py SERVED    (how many nodes the host serves already)
"""
import errno
import fcntl
import os
import select
import struct
import sys

SIZE = 1 << 20


def ioctl_number(direction, number, size):
    return direction << 30 | size << 16 | 0xE7 << 8 | number


SERVE = ioctl_number(1, 0x10, 72)
NODES = ioctl_number(3, 0x11, 72)
ALLOC = ioctl_number(3, 0x12, 96)
DRAIN = ioctl_number(1, 0x18, 32)
OPEN_TO_ALL, UNDO = 1, 1
device = os.open("/dev/zrs", os.O_RDWR)


def check(name, ok):
    print(("ok - " if ok else "not ok - ") + name, flush=True)


def refused(name, number, call, *args):
    try:
        call(*args)
        check(name + ": nothing was refused", False)
    except OSError as e:
        check(f"{name}: {e.strerror}", e.errno == number)


def serve(node, size=SIZE):
    memory = os.memfd_create("node")
    os.ftruncate(memory, size)
    request = struct.pack("<IIiIQQ16sIIQQ", 1, node, memory, OPEN_TO_ALL, 0, size, b"", 0, 0, 0, 0)
    fd = fcntl.ioctl(device, SERVE, bytearray(request))
    os.close(memory)  # the node has its pages
    return fd


def alloc(node, length=4096):
    request = struct.pack("<IIQQII16s32s16s", 1, node, length, 0, 0, 0, b"", b"", b"")
    return fcntl.ioctl(device, ALLOC, bytearray(request))


def drain(node, flags=0, reserved=0):
    fcntl.ioctl(device, DRAIN, bytearray(struct.pack("<IIIIQQ", 1, node, flags, reserved, 0, 0)))


first = 100
served = [serve(first + n) for n in range(16 - int(sys.argv[1]))]
check("a host serves 16 nodes", True)
refused("and no more", errno.ENOSPC, serve, 200)
refused("one that it serves already", errno.EBUSY, serve, first)
os.close(served.pop())
# Its place is free when its memory was given back.
for _ in range(1000):
    try:
        served.append(serve(200))
        break
    except OSError as e:
        if e.errno != errno.ENOSPC:
            raise
        select.select([], [], [], 0.01)
check("another one, when one has ended", len(served) == 16 - int(sys.argv[1]))

region = alloc(first)
poll = select.poll()
poll.register(served[0], select.POLLPRI)
check("a node in service tells nothing", poll.poll(0) == [])
drain(first)
refused("an allocation while it is drained", errno.ESHUTDOWN, alloc, first)
check("other nodes take regions", alloc(first + 1) >= 0)
check("its region is there", os.pwrite(region, b"still", 0) == 5 and os.pread(region, 5, 0) == b"still")
check("it has a region", poll.poll(0) == [])
os.close(region)
check("POLLPRI without one", poll.poll(60000) == [(served[0], select.POLLPRI)])
drain(first, UNDO)
check("taken back", poll.poll(0) == [] and alloc(first) >= 0)
refused("a node that is not here", errno.ENXIO, drain, 77)
refused("an unknown flag", errno.EINVAL, drain, first, 2)
refused("a reserved field", errno.EINVAL, drain, first, 0, 1)
