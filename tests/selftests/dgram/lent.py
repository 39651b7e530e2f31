#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Mapped receives of datagrams, from host A to host B.

  lent.py CASE

sizes: what is mapped, and what copied. calls: the ioctl's rules. limit: dgram_lend_percent. mixed: with recv() and
MSG_PEEK. filtered: by a filter that cuts. older: no byte of an earlier datagram shows. held: blocks that a program keeps are not written to. ends:
close, fork, a killed program, a pipe. reuse: many times. device: the device goes. unload: the module does."""

import ctypes
import fcntl
import json
import mmap
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import warnings

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from hosts import check, datagram, fails, host, meet, PATIENCE, SCALE, SOL_ZRS, ZRS, ZRS_DGRAM_UDP

SOL, PAGE, LONGEST, SMALL = socket.SOL_SOCKET, 4096, 65507, 16 << 10
ZRS_IOC_RECV_MAP, AREA_OFFSET, DONTWAIT, SHIFT = 3 << 30 | 48 << 16 | 0xE7 << 8 | 0x42, 0x200000000, 1, 2
A, B = os.environ["ADDR_A"], os.environ["ADDR_B"]
PERCENT = "/sys/module/zrs/parameters/dgram_lend_percent"
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.vmsplice.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_uint]
warnings.simplefilter("ignore", DeprecationWarning)


def holds(name, ok, seen=""):
    check(name, True if ok else seen, True)


def stat(name):
    return json.loads(subprocess.check_output(["zrs", "stats", "--json"]))[name]


def pool(name, device="rxeB"):
    """A figure of a device's pool; None: it has no pool."""
    pools = json.loads(subprocess.check_output(["zrs", "pool", "--json"]))["pools"]
    return next((p[name] for p in pools if p["device"] == device), None)


def lent():
    return pool("blocks_lent")


def becomes(call, value):
    """What `call` returns when it has become `value`, or after a while: the kernel looks each quarter of a second."""
    late = time.monotonic() + 4 * PATIENCE
    while (seen := call()) != value and time.monotonic() < late:
        time.sleep(0.01)
    return seen


def settle():
    """The lent blocks of B, once none is on its way back."""
    return becomes(lent, 0)


def set_percent(n):
    with open(PERCENT, "w") as f:
        f.write(str(n))


class Area:
    """Addresses for mapped receives of a socket."""

    def __init__(self, s, pages=17, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED, offset=AREA_OFFSET):
        self.s, self.len = s, pages * PAGE
        self.at = libc.mmap(None, self.len, prot, flags, s.fileno(), offset)
        if self.at == ctypes.c_void_p(-1).value:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def receive(self, at=0, room=None, flags=0, s=None):
        """Where the datagram begins in the area, its bytes, and how many were copied."""
        room = self.len - at if room is None else room
        call = bytearray(struct.pack("QQQII16x", self.at + at, room, 0, flags, 0))
        n = fcntl.ioctl(s or self.s, ZRS_IOC_RECV_MAP, call)
        addr, told, copied = struct.unpack("QQQ", call[:24])
        if told != n:
            raise ValueError(f"returned {n}, told {told}")
        return addr - self.at, self.bytes(addr - self.at, n), copied

    def bytes(self, at, n):
        return ctypes.string_at(self.at + at, n)

    def give_back(self):
        libc.madvise(self.at, self.len, mmap.MADV_DONTNEED)

    def unmap(self):
        libc.munmap(self.at, self.len)


def pair():
    """A sender that blocks, connected to a receiver, with the link between them up."""
    there, s = datagram("B", (B, 0)), datagram("A", (A, 0))
    s.connect(there.getsockname())
    meet(s, there)
    # With a time limit, Python's sockets do not block.
    for x in there, s:
        x.setblocking(True)
    return there, s


def mapping(pages=17):
    there, s = pair()
    return there, s, Area(there, pages)


def arrived(there, n=1):
    """Waits until `n` datagrams wait in the queue."""
    def waiting():
        info = there.getsockopt(SOL_ZRS, 17, 256)
        return struct.unpack("I", info[64:68])[0]
    return becomes(waiting, n) == n


def whole(n):
    return n // PAGE if n > SMALL else 0


def sizes():
    there, s, area = mapping(18)
    for n in (0, 1, 4096, 16383, SMALL, SMALL + 1, 20000, 20480, 20481, 61440, 65506, LONGEST):
        for at, flags in ((0, 0), (0, SHIFT), (1, SHIFT), (4095, SHIFT), (3, 0)):
            name = f"{n} bytes, to {at}{', SHIFT' if flags else ''}"
            data = os.urandom(n)
            s.send(data)
            holds(f"{name}: it arrives", arrived(there))
            seen = [pool("blocks_held"), lent()]
            before = stat("rx_copied"), stat("rx_bytes")
            begin, got, copied = area.receive(at, flags=flags)
            after = stat("rx_copied") - before[0], stat("rx_bytes") - before[1]
            blocks = whole(n)
            shifted = -at % PAGE if flags and blocks else 0
            maps = blocks if (at + shifted) % PAGE == 0 else 0
            check(f"{name}: its blocks are kept while it waits", seen, [blocks, blocks])
            check(f"{name}: the place", begin, at + shifted)
            holds(f"{name}: the bytes", got == data, (len(got), got[:8], data[:8]))
            check(f"{name}: copied, as told and counted", [copied, *after], [n - maps * PAGE, n - maps * PAGE, n])
            check(f"{name}: blocks lent, and with unread data", [becomes(lent, maps), pool("blocks_held")], [maps, 0])
            area.give_back()
            check(f"{name}: they come back", settle(), 0)


def calls():
    there, s = pair()

    def refused(**how):
        try:
            Area(there, **how)
        except OSError as e:
            return e.errno
        return 0

    check("a private area", refused(flags=mmap.MAP_PRIVATE), 22)
    check("a writable one", refused(prot=mmap.PROT_READ | mmap.PROT_WRITE), 13)
    check("another offset", refused(offset=0), 19)
    s.send(bytes(20000))
    holds("a datagram is there", arrived(there))
    raw = struct.pack("QQQII16x", 4096, 4096, 0, 0, 0)
    check("without an area", fails(fcntl.ioctl, there, ZRS_IOC_RECV_MAP, bytearray(raw)), "EFAULT")
    area, other = Area(there), datagram("B", (B, 0))
    check("outside of it", fails(area.receive, area.len, PAGE), "EFAULT")
    check("in another socket's", fails(area.receive, 0, PAGE, 0, other), "EFAULT")
    for name, call in (
        ("no room", struct.pack("QQQII16x", area.at, 0, 0, 0, 0)),
        ("unknown flags", struct.pack("QQQII16x", area.at, area.len, 0, 4, 0)),
        ("reserved", struct.pack("QQQII16x", area.at, area.len, 0, 0, 1)),
        ("reserved, at the end", struct.pack("QQQIIQQ", area.at, area.len, 0, 0, 0, 0, 1)),
    ):
        check(name, fails(fcntl.ioctl, there, ZRS_IOC_RECV_MAP, bytearray(call)), "EINVAL")
    check("too little room", fails(area.receive, 0, 19999), "EMSGSIZE")
    check("too little room behind the address", fails(area.receive, area.len - 19999, 20000), "EMSGSIZE")
    got = area.receive(0, 20000)
    # It had arrived before there was an area.
    check("it is still there then, and was copied", (got[0], got[1] == bytes(20000), got[2]), (0, True, 20000))
    s.send(b"x" * 20000)
    holds("a datagram is there", arrived(there))
    check("room for it, but not from a page on", area.receive(1, 20000, SHIFT)[::2], (1, 20000))
    check("none is left", fails(area.receive, 0, PAGE, DONTWAIT), "EAGAIN")
    there.setblocking(False)
    check("O_NONBLOCK", fails(area.receive), "EAGAIN")
    there.setblocking(True)
    there.setsockopt(SOL, socket.SO_RCVTIMEO, struct.pack("ll", 1, 0))
    before = time.monotonic()
    check("SO_RCVTIMEO", fails(area.receive), "EAGAIN")
    holds("it has waited", time.monotonic() - before > 0.5, time.monotonic() - before)
    there.setsockopt(SOL, socket.SO_RCVTIMEO, struct.pack("ll", 0, 0))
    threading.Timer(0.3, s.send, (b"y" * 30000,)).start()
    got = area.receive()
    check("it waits for one", (got[0], got[1] == b"y" * 30000, got[2]), (0, True, 30000 % PAGE))
    with host("B"):
        beside = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, ZRS)
    beside.setsockopt(SOL_ZRS, ZRS_DGRAM_UDP, 1)
    try:
        Area(beside)
        check("with a UDP socket inside", "an area", "ENODEV")
    except OSError as e:
        check("with a UDP socket inside", e.errno, 19)
    call = bytearray(struct.pack("QQQII16x", area.at, area.len, 0, 0, 0))
    # Python's name of EOPNOTSUPP.
    check("nor are there mapped receives", fails(fcntl.ioctl, beside, ZRS_IOC_RECV_MAP, call), "ENOTSUP")
    connected = datagram("B", (B, 0))
    connected.setblocking(True)
    held = Area(connected)
    connected.connect((A, 9))
    connected.send(b"nobody")
    check("an error of the socket", fails(held.receive), "ECONNREFUSED")
    fails(there.shutdown, socket.SHUT_RD)
    check("the end", area.receive()[1], b"")
    area.give_back()
    check("all blocks are back", settle(), 0)


def limit():
    there, s, area = mapping(17 * 16)
    data = os.urandom(LONGEST)

    def one(at=0, text="", want=0):
        s.send(data)
        arrived(there)
        _, got, copied = area.receive(at, LONGEST)
        check(text, (got == data, copied), (True, want))

    for percent in "101", "-1", "x":
        check(f"{percent} percent", fails(set_percent, percent), "EINVAL")
    with open("/sys/module/zrs/parameters/blocks") as f:
        blocks = int(f.read())
    set_percent(0)
    one(0, "0 percent: it is copied", LONGEST)
    check("0 percent: none is lent", lent(), 0)
    set_percent(1)
    most = blocks // 100
    one(0, f"1 percent: {most} blocks are lent", LONGEST - most * PAGE)
    check("1 percent: so many", lent(), most)
    one(17 * PAGE, "1 percent: the next one is copied while they are", LONGEST)
    s.send(data)
    holds("1 percent: one waits", arrived(there))
    area.give_back()
    check("1 percent: that was copied when it arrived", area.receive(0, LONGEST)[2], LONGEST)
    check("1 percent: they come back", settle(), 0)
    one(0, "1 percent: and are lent again", LONGEST - most * PAGE)
    area.give_back()
    settle()
    set_percent(25)
    most = blocks // 4
    for n in range(most // 15):
        one(n * 17 * PAGE, f"25 percent: the datagram {n + 1}", LONGEST - 15 * PAGE)
    last = most // 15
    one(last * 17 * PAGE, "25 percent: the last blocks", LONGEST - most % 15 * PAGE)
    check("25 percent: so many are lent", lent(), most)
    one((last + 1) * 17 * PAGE, "25 percent: then it is copied", LONGEST)
    # All that are lent are where they were.
    wrong = [n for n in range(last + 2) if area.bytes(n * 17 * PAGE, LONGEST) != data]
    check("25 percent: all have their bytes", wrong, [])
    back, forth = datagram("A", (A, 0)), datagram("B", (B, 0))
    forth.sendto(bytes(LONGEST), back.getsockname())
    check("a link in the other direction is made", len(back.recv(70000)), LONGEST)
    # What is lent stays so with another limit.
    set_percent(0)
    time.sleep(0.3)
    check("0 percent: they stay", lent(), most)
    area.unmap()
    check("25 percent: they come back", settle(), 0)
    set_percent(25)


def mixed():
    there, s, area = mapping()
    chunks = [os.urandom(n) for n in (LONGEST, 100, 30000, 20480, 4096, 50000)]
    for data in chunks:
        s.send(data)
    holds("all arrive", arrived(there, len(chunks)))
    blocks = sum(whole(len(data)) for data in chunks)
    check("their blocks are kept", [lent(), pool("blocks_held")], [blocks, blocks])
    before = stat("rx_copied")
    holds("MSG_PEEK", there.recv(70000, socket.MSG_PEEK) == chunks[0])
    ten = bytearray(10)
    n = there.recv_into(ten, 10, socket.MSG_PEEK | socket.MSG_TRUNC)
    check("MSG_PEEK and MSG_TRUNC", (n, bytes(ten)), (LONGEST, chunks[0][:10]))
    name = there.recvmsg(0, 0, socket.MSG_PEEK)
    check("MSG_PEEK without room: the sender", (name[0], name[3]), (b"", s.getsockname()))
    got = area.receive()
    check("then mapped", (got[1] == chunks[0], got[2]), (True, LONGEST % PAGE))
    check("copied", stat("rx_copied") - before, LONGEST + 10 + LONGEST % PAGE)
    check("blocks are lent", [lent(), pool("blocks_held")], [blocks, blocks - 15])
    holds("recv() of the next", there.recv(200) == chunks[1])
    parts = [bytearray(n) for n in (1, 4095, 5000, 30000)]
    n = there.recvmsg_into(parts)[0]
    holds("scattered recv() of blocks", (n, b"".join(parts)[:n]) == (30000, chunks[2]), n)
    short = there.recv(5000)
    holds("a recv() that is too short", short == chunks[3][:5000], len(short))
    check("those blocks are free", [becomes(lent, 15 + 12), pool("blocks_held")], [15 + 12, 12])
    got = area.receive()
    check("a small one", (got[1] == chunks[4], got[2]), (True, 4096))
    # The call gives back what was mapped.
    check("the mapped blocks are back", becomes(lent, 12), 12)
    libc.recv.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    fresh = libc.mmap(None, 4 * PAGE, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    libc.munmap(fresh + 3 * PAGE, PAGE)
    check("recv() to memory that ends", (libc.recv(there.fileno(), fresh, 50000, 0), ctypes.get_errno()), (-1, 14))
    check("those blocks are free as well", settle(), 0)
    # Several threads receive in both ways.
    late = time.monotonic() + 2 * SCALE
    seen, sent = [], 0
    before = struct.unpack("I", there.getsockopt(SOL_ZRS, 17, 256)[68:72])[0]

    def reads():
        while (data := there.recv(70000)) != b"end":
            seen.append(data)

    def maps():
        own = Area(there)
        while (data := own.receive()[1]) != b"end":
            seen.append(data)
        own.unmap()

    threads = [threading.Thread(target=f) for f in (reads, maps, maps)]
    for t in threads:
        t.start()
    while time.monotonic() < late:
        s.send(bytes([sent % 251]) * LONGEST)
        sent += 1
    for _ in threads:
        while any(t.is_alive() for t in threads) and not arrived_none(there):
            time.sleep(0.01)
        s.send(b"end")
        time.sleep(0.2)
    for t in threads:
        t.join(20 * PATIENCE)
    good = all(len(data) == LONGEST and data == data[:1] * LONGEST for data in seen)
    drops = struct.unpack("I", there.getsockopt(SOL_ZRS, 17, 256)[68:72])[0]
    check("three threads at once: sent = received + drops", (len(seen) + drops - before, good),
          (sent, True))
    area.give_back()
    check("all blocks are back", settle(), 0)


def arrived_none(there):
    return struct.unpack("I", there.getsockopt(SOL_ZRS, 17, 256)[64:68])[0] == 0


def filtered():
    """A filter (SO_ATTACH_FILTER) cuts the datagrams."""
    there, s, area = mapping()
    data = os.urandom(30000)
    for n in (0, 1, 4095, 4096, 5000, 20000, 28672, 28673, 29999, 30000, 30001):
        code = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 8 + n), 8)
        there.setsockopt(SOL, 26, struct.pack("HxxxxxxQ", 1, ctypes.addressof(code)))
        s.send(data)
        holds(f"{n} bytes are kept: it arrives", arrived(there))
        left = min(n, len(data))
        check(f"{n} bytes are kept: the full blocks stay", becomes(lent, left // PAGE), left // PAGE)
        got = area.receive()
        check(f"{n} bytes are kept: the others were copied", (got[1] == data[:left], got[2]), (True, left % PAGE))
        shown = area.bytes(0, -(-left // PAGE) * PAGE)
        check(f"{n} bytes are kept: nothing else shows", shown[left:] == bytes(len(shown) - left), True)
        area.give_back()
        check(f"{n} bytes are kept: the blocks come back", settle(), 0)


def older():
    """Pages show zeros behind the datagram, whatever was in the blocks before."""
    there, s, area = mapping()
    for _ in range(60):
        s.send(b"\xaa" * LONGEST)
        area.receive()
    bad = []
    for n in [SMALL + 1, 17000, 20000, 24575, 24577, 40000, LONGEST, 100, 4095, SMALL] * 4:
        s.send(b"\x55" * n)
        begin, got, _ = area.receive()
        end = -(-n // PAGE) * PAGE
        shown = area.bytes(0, end)
        if begin or got != b"\x55" * n or shown != got + bytes(end - n):
            bad.append((n, shown.count(b"\xaa")))
    check("nothing older shows behind a datagram", bad, [])
    # And by recv(), of blocks that were lent.
    plain, to_plain = pair()
    for n in (1, 100, 4095, 5000, 20000, LONGEST):
        to_plain.send(b"\x55" * n)
        room = bytearray(b"\x11" * 70000)
        got = plain.recv_into(room)
        if got != n or room != b"\x55" * n + b"\x11" * (70000 - n):
            bad.append(n)
    check("nor to another socket", bad, [])
    area.give_back()
    check("all blocks are back", settle(), 0)


def flood(n):
    """Datagrams to two sockets, one of them with an area: all blocks that are not lent are used."""
    plain, to_plain = pair()
    there, s, area = mapping()
    for k in range(n):
        for to in s, to_plain:
            to.send(bytes([0x80 | k % 100]) * LONGEST)
        area.receive(), plain.recv(70000)
    area.unmap()
    for x in plain, to_plain, there, s:
        x.close()


def held():
    there, s, area = mapping(17 * 6)
    chunks = [bytes([n + 1]) * LONGEST for n in range(6)]
    for n, data in enumerate(chunks):
        s.send(data)
        area.receive(n * 17 * PAGE, 17 * PAGE)
    check("blocks are lent", lent(), 90)
    flood(less(300))
    wrong = [n for n, data in enumerate(chunks) if area.bytes(n * 17 * PAGE, LONGEST) != data]
    check("no device writes into what a program has", wrong, [])
    # Those that wait are not written to either.
    waiting = [os.urandom(50000) for _ in range(3)]
    for data in waiting:
        s.send(data)
    holds("three wait", arrived(there, 3))
    flood(less(200))
    got = [there.recv(70000) for _ in waiting]
    check("nor into what waits", got == waiting, True)
    check("the mapped ones are lent still", becomes(lent, 90), 90)
    area.unmap()
    check("all blocks are back", settle(), 0)


def less(n):
    return n if SCALE == 1 else n // 8


def child(act):
    """A process that does something, says so, and waits to be killed; its number."""
    back, out = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            act()
            os.write(out, b"x")
        finally:
            time.sleep(1000)
            os._exit(0)
    os.close(out)
    select.select([back], [], [], 20 * PATIENCE)
    os.close(back)
    return pid


def kill(pid):
    os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def ends():
    # Closed with datagrams that nobody has read.
    there, s, area = mapping()
    area.unmap()
    for _ in range(2):
        s.send(bytes(LONGEST))
    holds("two wait", arrived(there, 2))
    check("their blocks are kept", lent(), 30)
    there.close()
    check("close() with unread datagrams", settle(), 0)

    # Closed with a mapping: it keeps the socket open.
    there, s, area = mapping()
    data = os.urandom(LONGEST)
    s.send(data), area.receive()
    there.close()
    time.sleep(0.5)
    check("close() with a mapping: the blocks are lent", lent(), 15)
    holds("its bytes are there", area.bytes(0, LONGEST) == data)
    area.unmap()
    check("unmapped: they come back", settle(), 0)

    # A child does not get the area, and the parent's stays.
    there, s, area = mapping()
    s.send(data), area.receive()
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        area.bytes(0, 10)
        os._exit(0)
    check("a child has no area", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), -signal.SIGSEGV)
    pid = child(lambda: None)
    area.unmap()
    check("nor keeps the blocks", settle(), 0)
    kill(pid)

    # A program that is killed with mappings and unread datagrams.
    there, s = pair()

    def receives():
        own = Area(there)
        s.send(data), own.receive()
        s.send(data), arrived(there)

    pid = child(receives)
    there.close()
    check("a program with both", lent(), 30)
    check("it is killed", kill(pid), -signal.SIGKILL)
    check("all blocks are back", settle(), 0)

    # Pages in a pipe, of a program that has ended.
    there, s = pair()
    out, into = os.pipe()
    fcntl.fcntl(into, 1031, 16 * PAGE)

    def splices():
        own = Area(there)
        s.send(data), own.receive()
        iov = struct.pack("PN", own.at, 15 * PAGE)
        box = ctypes.create_string_buffer(iov)
        n = libc.vmsplice(into, ctypes.addressof(box), 1, 0)
        if n != 15 * PAGE:
            os._exit(1)

    pid = child(splices)
    there.close()
    kill(pid)
    flood(less(100))
    check("pages in a pipe are lent", becomes(lent, 15), 15)
    got = b""
    while len(got) < 15 * PAGE:
        got += os.read(out, 15 * PAGE)
    holds("with their bytes", got == data[:15 * PAGE])
    check("and come back when they are out of it", settle(), 0)

    # The same of a page that is given back in the middle.
    there, s, area = mapping()
    s.send(data), area.receive()
    libc.madvise(area.at + 3 * PAGE, 5 * PAGE, mmap.MADV_DONTNEED)
    check("each page comes back on its own", becomes(lent, 10), 10)
    holds("the others stay", area.bytes(8 * PAGE, 7 * PAGE) == data[8 * PAGE:15 * PAGE])
    area.unmap()
    check("all blocks are back", settle(), 0)


def reuse():
    there, s, area = mapping()
    before, copied = [pool("blocks"), pool("blocks_held")], stat("rx_copied")
    number, wrong = less(2000), 0
    for k in range(number):
        data = bytes([k % 251]) * LONGEST
        s.send(data)
        begin, got, n = area.receive()
        wrong += (begin, n) != (0, LONGEST % PAGE) or got != data
    check(f"{number} times: the bytes, and what was copied", wrong, 0)
    check("counted", stat("rx_copied") - copied, number * (LONGEST % PAGE))
    area.give_back()
    check("all blocks are back", settle(), 0)
    check("as many are in use as before", becomes(lambda: [pool("blocks"), pool("blocks_held")], before), before)
    # New areas and sockets each time.
    for k in range(less(100)):
        own = Area(there, 17 + k % 3)
        s.send(bytes([k]) * 30000)
        wrong += own.receive()[1] != bytes([k]) * 30000
        own.unmap()
    check("an area for each", [wrong, settle()], [0, 0])


def device(cut, mend, cut_sender, mend_sender):
    there, s, area = mapping(18 * 2)
    chunks = [os.urandom(LONGEST) for _ in range(4)]
    s.send(chunks[0]), area.receive(0, 17 * PAGE)
    for data in chunks[1:3]:
        s.send(data)
    holds("two wait", arrived(there, 2))
    check("the blocks of all are lent", lent(), 45)
    check("the sender's device goes", os.system(cut_sender), 0)
    time.sleep(0.5)
    check("they are lent still", lent(), 45)
    holds("the mapped one has its bytes", area.bytes(0, LONGEST) == chunks[0])
    got = area.receive(18 * PAGE)
    check("the next one is mapped", (got[1] == chunks[1], got[2]), (True, LONGEST % PAGE))
    check("a new device", os.system(mend_sender), 0)
    check("the receiver's device goes", os.system(cut), 0)
    check("its pool is gone", lent(), None)
    holds("both mapped ones have their bytes",
          area.bytes(0, LONGEST) + area.bytes(18 * PAGE, LONGEST) == chunks[0] + chunks[1])
    got = area.receive(0, 17 * PAGE)
    check("what waits can be mapped", (got[1] == chunks[2], got[2]), (True, LONGEST % PAGE))
    check("a new device", os.system(mend), 0)
    late, came = time.monotonic() + 60 * PATIENCE, None
    s.setblocking(True)
    # The link may have to be made again first.
    while came is None and time.monotonic() < late:
        try:
            s.send(chunks[3])
        except OSError:
            pass
        if select.select([there], [], [], 0.5)[0]:
            came = area.receive(0, 17 * PAGE)
    holds("a datagram over it", came and came[1] == chunks[3])
    check("it is mapped", came and came[2], LONGEST % PAGE)

    def without_others():
        """The lent blocks, but for those of datagrams that have come after that one."""
        while select.select([there], [], [], 0)[0]:
            there.recv(70000)
        return lent()

    check("blocks of the new pool are lent", becomes(without_others, 15), 15)
    holds("the old pool's are where they were", area.bytes(18 * PAGE, LONGEST) == chunks[1])
    area.unmap()
    check("all blocks are back", settle(), 0)


def unload():
    out, into = os.pipe()
    fcntl.fcntl(into, 1031, 16 * PAGE)
    data = os.urandom(LONGEST)
    pid = os.fork()
    if pid == 0:
        there, s, area = mapping()
        s.send(data), area.receive()
        there.close(), s.close()
        gone = subprocess.call(["rmmod", "zrs"], stderr=subprocess.DEVNULL)
        check("rmmod does not go while there is a mapping", gone != 0, True)
        box = ctypes.create_string_buffer(struct.pack("PN", area.at, 15 * PAGE))
        check("pages go into a pipe", libc.vmsplice(into, ctypes.addressof(box), 1, 0), 15 * PAGE)
        os._exit(0)
    os.waitpid(pid, 0)
    late = time.monotonic() + 20 * PATIENCE
    while subprocess.call(["rmmod", "zrs"], stderr=subprocess.DEVNULL) != 0 and time.monotonic() < late:
        time.sleep(0.2)
    check("the module goes with pages in a pipe", os.path.exists("/sys/module/zrs"), False)
    # What is free now is used for something else.
    with mmap.mmap(-1, 64 << 20) as junk:
        junk.write(b"\x77" * (64 << 20))
    got = b""
    while len(got) < 15 * PAGE:
        got += os.read(out, 15 * PAGE)
    holds("they have their bytes", got == data[:15 * PAGE])


CASES = {f.__name__: f for f in (sizes, calls, limit, mixed, filtered, older, held, ends, reuse, device, unload)}
name, *commands = sys.argv[1:]
CASES[name](*commands)
