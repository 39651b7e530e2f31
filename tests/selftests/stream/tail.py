#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The copied tail of blocking sends. Prints a line for each thing that was looked at.

B drops all packets behind the first ones of a call. So B's device has acknowledged the pinned part of the call, and
cannot acknowledge the tail: whatever the call waits for then, it waits for until the packets come again.
"""

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import socket
import struct
import sys
import termios
import threading

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import nft
from hosts import PATIENCE, ZRS, becomes, check, fails, host

SOL_ZRS, ZRS_INFO, SO_ZEROCOPY, MSG_ZEROCOPY = 0x5A52, 2, 60, 0x4000000
PARAMETER = "/sys/module/zrs/parameters/copy_tail_kib"
KIB, PAGE = 1 << 10, 4096
# Brings the window, and leaves nothing on the way.
WARM = 300 * KIB
# Of a call, and of its tail.
CALL, TAIL = 128 * KIB, 64 * KIB
# Headers and messages of control included, these packets hold the pinned part, and not the tail.
THROUGH = CALL - TAIL + 24 * KIB

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.send.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.send.restype = ctypes.c_ssize_t


def tail_of(kib):
    with open(PARAMETER, "w", encoding="ascii") as f:
        f.write(str(kib))


class Memory:
    """Pages with bytes that differ."""

    def __init__(self, size):
        self.data = os.urandom(size)
        self.size = size
        self.at = libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        ctypes.memmove(self.at, self.data, size)

    def overwrite(self):
        ctypes.memset(self.at, 0x77, self.size)

    def end_at(self, size):
        """There is no memory behind the first `size` bytes."""
        libc.munmap(self.at + size, self.size - size)


def send(s, memory, size, flags=0, off=0):
    """One call, of a socket that blocks; the bytes sent, or the name of the error."""
    n = libc.send(s.fileno(), memory.at + off, size, flags)
    return n if n >= 0 else errno.errorcode[ctypes.get_errno()]


def copied(s):
    return struct.unpack_from("Q", s.getsockopt(SOL_ZRS, ZRS_INFO, 256), 48)[0]


def queued(s, request):
    return struct.unpack("i", fcntl.ioctl(s, request, bytes(4)))[0]


def pins():
    """The pages that anyone has pinned, as the kernel counts."""
    with open("/proc/sys/vm/stat_refresh", "w", encoding="ascii") as f:
        f.write("1")
    with open("/proc/vmstat", encoding="ascii") as f:
        stat = dict(line.split() for line in f)
    return int(stat["nr_foll_pin_acquired"]) - int(stat["nr_foll_pin_released"])


def read(s, size):
    got = bytearray()
    while len(got) < size and (part := s.recv(size - len(got))):
        got += part
    return bytes(got)


def pair():
    """A socket in A and one in B, with nothing on the way between them."""
    with host("B"):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, ZRS)
    listener.bind((os.environ["ADDR_B"], 0))
    listener.listen()
    with host("A"):
        s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, ZRS)
    s.connect(listener.getsockname())
    there = listener.accept()[0]
    listener.close()
    reader = threading.Thread(target=read, args=(there, WARM))
    reader.start()
    s.sendall(bytes(WARM))
    reader.join()
    becomes(lambda: queued(s, termios.TIOCOUTQ), 0)
    return s, there


class Call(threading.Thread):
    """A call that may wait for longer than the test does."""

    def __init__(self, *args):
        super().__init__(daemon=True)
        self.args, self.result = args, "it waits"
        self.start()

    def run(self):
        self.result = send(*self.args)

    def after(self, seconds):
        self.join(seconds)
        return self.result


@contextlib.contextmanager
def cut():
    """B gets as many packets as the pinned part of a call has, and no more."""
    with contextlib.ExitStack() as rule:
        with host("B"):
            rule.enter_context(nft.dropped_after(THROUGH))
        try:
            yield
        finally:
            with host("B"):
                rule.close()


def returns_early():
    """The call has returned while its tail is on the way."""
    s, there = pair()
    memory, before, held = Memory(CALL), copied(s), pins()
    with cut():
        call = Call(s, memory, CALL)
        check("the call does not wait for its tail", call.after(20 * PATIENCE), CALL)
        check("the bytes on the way are the tail", queued(s, termios.TIOCOUTQ), TAIL)
        check("no page is pinned", becomes(lambda: pins() - held, 0), 0)
        check("the tail was copied, and nothing else", copied(s) - before, TAIL)
        check("the pinned part has arrived", becomes(lambda: queued(there, termios.FIONREAD), CALL - TAIL), CALL - TAIL)
        memory.overwrite()
    check("the peer reads what was sent", read(there, CALL) == memory.data, True)
    check("nothing is on the way", becomes(lambda: queued(s, termios.TIOCOUTQ), 0), 0)
    s.close()
    there.close()


def closed_early():
    """The tail arrives although the socket is closed and the sender's memory is gone."""
    s, there = pair()
    memory = Memory(CALL)
    with cut():
        check("a call, then close()", Call(s, memory, CALL).after(20 * PATIENCE), CALL)
        memory.end_at(0)
        s.close()
    check("every byte arrives, and the end", (read(there, CALL) == memory.data, there.recv(1)), (True, b""))
    there.close()


def all_tail():
    """A call that is no longer than a tail does not wait for the device."""
    s, there = pair()
    memory, before, held = Memory(CALL), copied(s), pins()
    with cut():
        check("before a short call", Call(s, memory, CALL).after(20 * PATIENCE), CALL)
        check("a call that is all tail does not wait", Call(s, memory, TAIL, 0, TAIL).after(20 * PATIENCE), TAIL)
        check("and pins nothing", becomes(lambda: pins() - held, 0), 0)
        check("it is on the way", queued(s, termios.TIOCOUTQ), 2 * TAIL)
        memory.overwrite()
    check("every byte of both calls", read(there, CALL + TAIL) == memory.data + memory.data[TAIL:], True)
    check("two tails were copied, one of them a call", copied(s) - before, 2 * TAIL)
    s.close()
    there.close()


def next_call_waits():
    """The next call waits for its own pinned part, which lies behind the tail: so few copies are held."""
    s, there = pair()
    first, second, before = Memory(CALL), Memory(CALL), copied(s)
    with cut():
        check("a call", Call(s, first, CALL).after(20 * PATIENCE), CALL)
        call = Call(s, second, CALL)
        check("its successor waits", call.after(0.5), "it waits")
        check("and two tails are held", becomes(lambda: queued(s, termios.TIOCOUTQ), TAIL + CALL), TAIL + CALL)
    check("until the packets come", call.after(60 * PATIENCE), CALL)
    check("every byte of both", read(there, 2 * CALL) == first.data + second.data, True)
    check("two tails were copied", copied(s) - before, 2 * TAIL)
    s.close()
    there.close()


def nothing_copied():
    """With copy_tail_kib=0 the call waits for all."""
    s, there = pair()
    memory, before = Memory(CALL), copied(s)
    tail_of(0)
    with cut():
        call = Call(s, memory, CALL)
        check("copy_tail_kib=0: the call waits", call.after(0.5), "it waits")
    check("copy_tail_kib=0: until all is there", call.after(60 * PATIENCE), CALL)
    check("copy_tail_kib=0: every byte", read(there, CALL) == memory.data, True)
    check("copy_tail_kib=0: nothing is copied", copied(s) - before, 0)
    tail_of(64)
    s.close()
    there.close()


def sizes():
    """How much is copied of calls of all sizes, from any place in memory."""
    s, there = pair()
    memory = Memory(4 * CALL)
    cases = [
        # bytes, where, KiB that are set: bytes that are copied
        ((16 * KIB, 0, 64), 16 * KIB),
        ((16 * KIB, 100, 8), 8 * KIB),
        ((16 * KIB, 100, 0), 0),
        ((20 * KIB, 0, 8), 0),
        ((24 * KIB, 1, 8), 4 * KIB),
        ((64 * KIB, 0, 64), 64 * KIB),
        ((70_000, 4095, 64), 70_000 - 20_480),
        ((100_001, 4095, 64), 100_001 - 36_864),
        ((CALL, 0, 64), 64 * KIB),
        ((CALL, 0, 8), 8 * KIB),
        ((CALL, 0, 0), 0),
        ((400_000, 17, 256), 400_000 - 139_264),
        ((400_000, 17, 64), 400_000 - 335_872),
        # Of fewer bytes than pin_threshold all are copied.
        ((16_383, 0, 0), 16_383),
    ]
    for (size, off, kib), want in cases:
        tail_of(kib)
        before = copied(s)
        name = f"{size} bytes at {off}, tail of {kib} KiB"
        call = Call(s, memory, size, 0, off)
        right = read(there, size) == memory.data[off : off + size]
        check(f"{name}: sent and right", (call.after(60 * PATIENCE), right), (size, True))
        check(f"{name}: copied", copied(s) - before, want)
    tail_of(64)
    before = copied(s)
    call = Call(s, memory, CALL, socket.MSG_MORE)
    check("with MSG_MORE: the bytes arrive at once", read(there, CALL) == memory.data[:CALL], True)
    check("with MSG_MORE: copied", (call.after(60 * PATIENCE), copied(s) - before), (CALL, TAIL))
    s.setsockopt(socket.SOL_SOCKET, SO_ZEROCOPY, 1)
    before = copied(s)
    call = Call(s, memory, CALL, MSG_ZEROCOPY)
    check("with MSG_ZEROCOPY: the bytes", read(there, CALL) == memory.data[:CALL], True)
    check("with MSG_ZEROCOPY: copied", (call.after(60 * PATIENCE), copied(s) - before), (CALL, 0))
    s.close()
    there.close()


def pieces():
    """Several pieces of memory in one call."""
    s, there = pair()
    parts = [os.urandom(n) for n in (1, 50_000, 3, 20_000, 30_000)]
    whole, before = b"".join(parts), copied(s)
    got = []
    reader = threading.Thread(target=lambda: got.append(read(there, len(whole))))
    reader.start()
    sent = s.sendmsg(parts)
    reader.join()
    check("several pieces", (sent, got[0] == whole), (len(whole), True))
    check("several pieces: copied", copied(s) - before, len(whole) - 36_864)
    s.close()
    there.close()


def ends(where, name):
    """The program's memory ends within the call: the bytes before that are sent, and count."""
    s, there = pair()
    memory, before = Memory(CALL), copied(s)
    memory.end_at(where)
    call = Call(s, memory, CALL)
    check(f"{name}: bytes", (read(there, where) == memory.data[:where], call.after(60 * PATIENCE)), (True, where))
    check(f"{name}: copied", copied(s) - before, max(where - (CALL - TAIL), 0))
    check(f"{name}: the rest", send(s, memory, TAIL, 0, where), "EFAULT")
    s.close()
    there.close()


def gone():
    """The peer resets the connection while a call waits for the room of its tail."""
    s, there = pair()
    memory = Memory(64 * CALL)
    call = Call(s, memory, 64 * CALL)
    becomes(lambda: queued(there, termios.FIONREAD) > CALL, True)
    there.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    there.close()
    result = call.after(60 * PATIENCE)
    check("the peer resets: a short count", isinstance(result, int) and 0 < result < 64 * CALL, True)
    check("then the error", fails(s.send, b"x") in ("ECONNRESET", "EPIPE"), True)
    s.close()


held = pins()
returns_early()
closed_early()
all_tail()
next_call_waits()
nothing_copied()
sizes()
pieces()
ends(CALL - 32 * KIB, "memory ends in the tail")
ends(CALL - TAIL, "memory ends where the tail begins")
ends(32 * KIB, "memory ends in the pinned part")
gone()
check("no page is pinned", becomes(lambda: pins() - held, 0), 0)
