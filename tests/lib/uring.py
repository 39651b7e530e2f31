# SPDX-License-Identifier: GPL-2.0
"""As much of io_uring as tests of sockets need."""

import ctypes
import errno
import mmap
import os
import select
import struct

SETUP, ENTER, GETEVENTS = 425, 426, 1
ENTRIES = 8
LIMIT = 20 * int(os.environ.get("TIME_SCALE", "1"))  # of waiting, in seconds
POLL, SENDMSG, RECVMSG, ACCEPT, SEND, RECV, SOCKET, COMMAND = 6, 9, 10, 13, 26, 27, 45, 46
PROVIDE_BUFFERS, SEND_ZC, SENDMSG_ZC = 31, 47, 48
ACCEPT_MULTISHOT = 1  # in `ioprio`
RECV_MULTISHOT = 2  # the same
SELECT = 32  # of a request: the kernel chooses a buffer of the group
BUFFER, MORE, NOTIF = 1, 2, 8  # of a completion; the number of the buffer is in the upper half
SIOCINQ, SIOCOUTQ = 0, 1  # commands of a socket

libc = ctypes.CDLL(None, use_errno=True)


def called(number, *args):
    got = libc.syscall(number, *args)
    if got < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return got


class Ring:
    def __init__(self):
        params = ctypes.create_string_buffer(120)
        self.fd = called(SETUP, ENTRIES, params)
        at = lambda n: struct.unpack_from("I", params, n)[0]
        self.sq_tail, self.sq_array, self.cq_head, self.cq_tail, self.cqes = at(44), at(64), at(80), at(84), at(100)
        self.rings = mmap.mmap(self.fd, 4096)
        self.entries = mmap.mmap(self.fd, ENTRIES * 64, offset=0x10000000)

    def word(self, at, value=None):
        if value is not None:
            struct.pack_into("I", self.rings, at, value & 0xFFFFFFFF)
        return struct.unpack_from("I", self.rings, at)[0]

    def submit(self, op, fd, off=0, length=0, ioprio=0, addr=0, flags=0, how=0, group=0):
        """Hands a request to the kernel; `flags`: those of the call, or the events to poll for;
        `how`: those of the request, `group`: of buffers."""
        tail = self.word(self.sq_tail)
        slot = tail % ENTRIES
        struct.pack_into("<BBHiQQIIQH22x", self.entries, slot * 64, op, how, ioprio, fd, off, addr, length, flags, 0, group)
        self.word(self.sq_array + 4 * slot, slot)
        self.word(self.sq_tail, tail + 1)
        called(ENTER, self.fd, 1, 0, 0, None, 0)

    def next(self):
        """The next completion, which is waited for: its result and flags. ETIME: there is none."""
        head = self.word(self.cq_head)
        while self.word(self.cq_tail) == head:
            if not select.select([self.fd], [], [], LIMIT)[0]:
                raise OSError(errno.ETIME, "no completion")
            called(ENTER, self.fd, 0, 0, GETEVENTS, None, 0)
        # The kernel makes twice as many completions as entries.
        _, result, flags = struct.unpack_from("QiI", self.rings, self.cqes + 16 * (head % (2 * ENTRIES)))
        self.word(self.cq_head, head + 1)
        return result, flags

    def ask(self, *args, **more):
        """The result of a request that has one completion."""
        self.submit(*args, **more)
        return self.next()[0]
