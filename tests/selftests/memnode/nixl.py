#!/usr/bin/python3
"""NIXL's POSIX backend on regions of memory nodes: a worker's memory goes to a region, a router has it copied to
another node's, another worker reads it from there. Nothing of NIXL is changed: a region is a file to it.
  nixl.py DIR    (with the packages)
"""
import ctypes
import fcntl
import mmap
import os
import struct
import sys
import time

SIZE = 2 << 20
ALLOC = 3 << 30 | 96 << 16 | 0xE7 << 8 | 0x12
sys.path[0] = sys.argv[1]  # there is a queue.py beside this file
try:
    from nixl_cu12._api import nixl_agent, nixl_agent_config
except ImportError as e:
    print(f"skip - NIXL: {e}")
    sys.exit()


def check(name, ok):
    print(("ok - " if ok else "not ok - ") + name, flush=True)


def alloc(node):
    if len(sys.argv) > 2:
        fd = os.open(f"{sys.argv[2]}.{node}", os.O_RDWR | os.O_CREAT)
        os.ftruncate(fd, SIZE)
        return fd
    request = struct.pack("<IIQQII16s32s16s", 1, node, SIZE, 0, 0, 0, b"", b"", b"")
    return fcntl.ioctl(os.open("/dev/zrs", os.O_RDWR), ALLOC, bytearray(request))


class Worker:
    """An agent with memory, a part of it for each of several descriptors."""

    def __init__(self, name, queue):
        self.name = name
        self.agent = nixl_agent(name, nixl_agent_config(backends=[]))
        self.agent.create_backend("POSIX", {queue: "true"})
        self.memory = mmap.mmap(-1, SIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.registered = self.agent.register_memory([(self.address, SIZE, 0, "")], "DRAM")

    def move(self, what, region, part=256 << 10):
        """WRITE to or READ from a region; the state at the end."""
        file = self.agent.register_memory([(0, SIZE, region, "")], "FILE")
        parts = range(0, SIZE, part)
        ours = self.agent.get_xfer_descs([(self.address + at, part, 0) for at in parts], "DRAM")
        theirs = self.agent.get_xfer_descs([(at, part, region) for at in parts], "FILE")
        handle = self.agent.initialize_xfer(what, ours, theirs, self.name)
        state = self.agent.transfer(handle)
        end = time.monotonic() + 60
        while state == "PROC" and time.monotonic() < end:
            state = self.agent.check_xfer_state(handle)
        self.agent.release_xfer_handle(handle)
        self.agent.deregister_memory(file)
        return state


for queue in ("use_aio", "use_uring", "use_posix_aio"):
    try:
        prefill, decode = Worker("prefill-" + queue, queue), Worker("decode-" + queue, queue)
    except Exception as e:  # whatever the package throws
        print(f"skip - NIXL, {queue}: {type(e).__name__} {e}", flush=True)
        continue
    prefill.memory[:] = data = os.urandom(SIZE)
    one, two = alloc(1), alloc(2)
    check(f"NIXL {queue}: a worker writes a region", prefill.move("WRITE", one) == "DONE")
    check(f"NIXL {queue}: which has it", os.pread(one, SIZE, 0) == data)
    check(f"NIXL {queue}: a router copies it to the other node", os.copy_file_range(one, two, SIZE, 0, 0) == SIZE)
    check(f"NIXL {queue}: and another worker reads it there",
          decode.move("READ", two) == "DONE" and decode.memory[:] == data)
