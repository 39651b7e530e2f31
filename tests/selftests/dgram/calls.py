#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Other ways to use datagram sockets, compared with UDP's as compare.py does: several messages in a call,
io_uring, sockets in other hands, namespaces, ports, and more control messages.

  calls.py [--udp] [CASE...]       prints a line for each thing it looked at

--udp: of the sockets of ZRS, with a UDP socket inside.
"""

import array
import contextlib
import ctypes
import errno
import os
import select
import socket
import struct
import time

from kinds import SOL, V4, V6, Kind, fails, free_port, host, libc, nothing, patient, run, wait, PATIENCE, SCALE
import uring

IP_RECVTTL, IPV6_RECVHOPLIMIT, IPV6_RECVTCLASS, IP_LOCAL_PORT_RANGE = 12, 51, 66, 51
SO_TIMESTAMP, SO_TIMESTAMPNS, SO_TIMESTAMP_NEW, SO_TIMESTAMPNS_NEW = 29, 35, 63, 64
SO_MEMINFO, MSG_WAITFORONE = 55, 0x10000
SO_SELECT_ERR_QUEUE, SO_RCVMARK, SO_RCVPRIORITY = 45, 75, 82
IP_RECVERR, IPV6_RECVERR, IP_BIND_ADDRESS_NO_PORT = 11, 25, 24
IPV6_2292PKTINFO, IPV6_2292HOPLIMIT, IPV6_RECVORIGDSTADDR = 2, 8, 74
# Options that ask for what only some packets have: IP_RECVOPTS, IP_RETOPTS, IP_RECVFRAGSIZE; IPV6_2292HOPOPTS,
# IPV6_2292DSTOPTS, IPV6_2292RTHDR, IPV6_RECVHOPOPTS, IPV6_RECVRTHDR, IPV6_RECVDSTOPTS,
# IPV6_RECVPATHMTU, IPV6_RECVFRAGSIZE.
ONLY_SOME_IP, ONLY_SOME_IPV6 = (6, 7, 25), (3, 4, 5, 53, 56, 58, 60, 77)


class Message:
    """A struct msghdr with one part, and what it points to."""

    def __init__(self, room, to=None, control=0):
        self.room = ctypes.create_string_buffer(room, max(len(room), 1)) if isinstance(room, bytes) else (
            ctypes.create_string_buffer(room))
        n = len(room) if isinstance(room, bytes) else room
        self.vec = ctypes.create_string_buffer(struct.pack("PN", ctypes.addressof(self.room), n))
        name = raw(to) if to else bytes(0 if isinstance(room, bytes) else 28)
        self.name = ctypes.create_string_buffer(name, 28)
        self.control = ctypes.create_string_buffer(control or 1)
        at = ctypes.addressof
        self.header = struct.pack("PIPNPNi4x", at(self.name) if name else 0, len(name), at(self.vec), 1,
                                  at(self.control) if control else 0, control, 0)


def raw(addr):
    """A sockaddr."""
    ip, port = addr[:2]
    if ":" in ip:
        return struct.pack("=HHI16sI", V6, socket.htons(port), 0, socket.inet_pton(V6, ip), 0)
    return struct.pack("=HH4s8x", V4, socket.htons(port), socket.inet_pton(V4, ip))


def messages(call, s, msgs, flags=0, *more):
    """sendmmsg() or recvmmsg(): the result; and of each message its length, flags and the name's length."""
    block = ctypes.create_string_buffer(b"".join(m.header + bytes(8) for m in msgs))
    n = call(s.fileno(), block, len(msgs), flags, *more)
    if n < 0:
        return errno.errorcode[ctypes.get_errno()]
    said = [struct.unpack_from("8xI36xiI", block, 64 * i) for i in range(n)]
    return n, [(length, flag, name) for name, flag, length in said]


def queued(s):
    """The bytes in its receive queue, which each datagram adds to."""
    return struct.unpack_from("I", s.getsockopt(SOL, SO_MEMINFO, 36))[0]


def several(k):
    """sendmmsg() and recvmmsg()."""
    there, other, s = k.server(), k.server(), k.client()
    at, second = there.getsockname(), other.getsockname()
    s.sendto(b"first", at), there.recv(10), s.sendto(b"first", second), other.recv(10)
    data = [b"", b"a", os.urandom(5000), b"z" * 100]
    sent = messages(libc.sendmmsg, s, [Message(d, at if i != 1 else second) for i, d in enumerate(data)])
    seen = {"sent": sent, "to one": [there.recv(10000) for _ in range(3)] == [data[0], data[2], data[3]],
            "to another": other.recv(10), "none": messages(libc.sendmmsg, s, [])}
    long = bytes(70000)
    seen["the third is too long"] = messages(libc.sendmmsg, s, [Message(d, at) for d in (b"1", b"2", long, b"4")])
    seen["two of them arrive"] = (there.recv(10), there.recv(10), nothing(there))
    seen["the first is too long"] = messages(libc.sendmmsg, s, [Message(d, at) for d in (long, b"2")])
    seen["without a name"] = messages(libc.sendmmsg, s, [Message(b"1", at), Message(b"2")])
    there.recv(10)
    for d in data:
        before, late = queued(there), time.monotonic() + 20 * PATIENCE
        s.sendto(d, at)
        while queued(there) == before and time.monotonic() < late:
            time.sleep(0.005)
    boxes = [Message(200, control=0) for _ in range(6)]
    seen["received"] = messages(libc.recvmmsg, there, boxes, socket.MSG_DONTWAIT, None)
    seen["their bytes"] = [box.room.raw == d[:200].ljust(200, b"\0") for box, d in zip(boxes, data)]
    seen["their senders"] = [box.name.raw[:8] == raw(s.getsockname())[:8] for box in boxes[:4]]
    seen["none is left"] = messages(libc.recvmmsg, there, boxes, socket.MSG_DONTWAIT, None)
    there.setblocking(True)
    s.sendto(b"one", at)
    seen["MSG_WAITFORONE"] = messages(libc.recvmmsg, there, boxes, MSG_WAITFORONE, None)
    s.sendto(b"one", at), s.sendto(b"two", at)
    wait(there)
    seen["peeked"] = messages(libc.recvmmsg, there, boxes[:2], socket.MSG_PEEK, None)
    seen["two asked for"] = messages(libc.recvmmsg, there, boxes[:2], 0, None)
    s.sendto(b"one", at)
    limit = ctypes.create_string_buffer(struct.pack("qq", 0, 1000))
    wait(there)
    seen["with a time limit"] = messages(libc.recvmmsg, there, boxes[:1], 0, limit)
    return seen


def asynchronous(k):
    """io_uring: sends, receives, and a poll, some of which wait."""
    there, s = k.pair()
    at = ctypes.addressof
    ring = uring.Ring()
    box = ctypes.create_string_buffer(5000)
    data = os.urandom(5000)
    out = ctypes.create_string_buffer(data, 5000)
    error = lambda n: n if n >= 0 else errno.errorcode[-n]

    def ends(*args, **more):
        return error(ring.ask(*args, **more))

    seen = {"SEND": (ends(uring.SEND, s.fileno(), length=5000, addr=at(out)), there.recv(6000) == data)}
    s.send(data)
    seen["RECV"] = (ends(uring.RECV, there.fileno(), length=5000, addr=at(box)), box.raw == data)
    there.setblocking(True)
    ring.submit(uring.RECV, there.fileno(), length=5000, addr=at(box))
    s.send(b"late")
    seen["RECV that waits"] = (error(ring.next()[0]), box.raw[:4])
    s.send(bytes(10))
    wait(there)
    seen["RECV, MSG_TRUNC"] = ends(uring.RECV, there.fileno(), length=4, addr=at(box), flags=socket.MSG_TRUNC)
    seen["RECV, MSG_DONTWAIT"] = ends(uring.RECV, there.fileno(), length=4, addr=at(box), flags=socket.MSG_DONTWAIT)
    msg = Message(b"message", there.getsockname())
    header = ctypes.create_string_buffer(msg.header)
    seen["SENDMSG"] = (ends(uring.SENDMSG, s.fileno(), length=1, addr=at(header)), there.recv(10))
    msg = Message(100)
    header = ctypes.create_string_buffer(msg.header)
    ring.submit(uring.RECVMSG, there.fileno(), length=1, addr=at(header))
    s.send(b"message")
    seen["RECVMSG"] = (error(ring.next()[0]), msg.room.raw[:7], msg.name.raw[:8] == raw(s.getsockname())[:8])
    ring.submit(uring.POLL, there.fileno(), flags=select.POLLIN)
    s.send(b"polled")
    seen["POLL"] = (error(ring.next()[0]) & select.POLLIN, there.recv(10))
    seen["POLL for POLLOUT"] = ends(uring.POLL, s.fileno(), flags=select.POLLOUT) & select.POLLOUT
    for _ in range(3):
        ring.submit(uring.RECV, there.fileno(), length=100, addr=at(box))
    for n in range(1, 4):
        s.send(bytes(n))
    seen["three that wait"] = sorted(error(ring.next()[0]) for _ in range(3))
    seen["SEND of bad memory"] = ends(uring.SEND, s.fileno(), length=100, addr=4096)
    seen["SEND of too much"] = ends(uring.SEND, s.fileno(), length=70000, addr=at(box))
    s.send(b"x")
    wait(there)
    seen["RECV into bad memory"] = (ends(uring.RECV, there.fileno(), length=100, addr=4096), nothing(there))
    return seen


def lends(k):
    """io_uring: SEND_ZC and SENDMSG_ZC, whose second completion gives the memory back."""
    there, s = k.pair()
    at = ctypes.addressof
    ring = uring.Ring()
    data = os.urandom(60000)
    out = ctypes.create_string_buffer(data, 70000)
    error = lambda n: n if n >= 0 else errno.errorcode[-n]

    def ends(*args, **more):
        """The result, and whether the memory was given back by another completion."""
        ring.submit(*args, **more)
        result, flags = ring.next()
        given = ring.next() if flags & uring.MORE else None
        return error(result), given and (given[0], given[1] & uring.NOTIF)

    def sendmsg(s, n, name=None):
        msg = Message(b"", name)
        base = struct.pack("QQ", at(out), n)
        vec = ctypes.create_string_buffer(base, 16)
        header = ctypes.create_string_buffer(msg.header[:16] + struct.pack("Q", at(vec)) + msg.header[24:], len(msg.header))
        return ends(uring.SENDMSG_ZC, s.fileno(), length=1, addr=at(header))

    seen = {}
    for n in (0, 1, 4096, 4097, 20000, 60000):
        seen[f"SEND_ZC, {n} bytes"] = ends(uring.SEND_ZC, s.fileno(), length=n, addr=at(out)), there.recv(70000) == data[:n]
        seen[f"SENDMSG_ZC, {n} bytes"] = sendmsg(s, n), there.recv(70000) == data[:n]
    free = k.sock("A")
    seen["SENDMSG_ZC, to an address"] = sendmsg(free, 30000, there.getsockname()), there.recv(70000) == data[:30000]
    # Completions of both kinds may be mixed.
    for _ in range(4):
        ring.submit(uring.SEND_ZC, s.fileno(), length=5000, addr=at(out))
    done = [ring.next() for _ in range(8)]
    seen["four at once"] = sorted((result, flags & uring.MORE, flags & uring.NOTIF) for result, flags in done)
    seen["they arrive"] = [there.recv(70000) == data[:5000] for _ in range(4)]
    seen["of bad memory"] = ends(uring.SEND_ZC, s.fileno(), length=30000, addr=4096)[0]
    seen["of too much"] = ends(uring.SEND_ZC, s.fileno(), length=70000, addr=at(out))[0]
    seen["without a peer"] = sendmsg(free, 5)[0]
    seen["after them"] = sendmsg(s, 5), there.recv(10) == data[:5]
    return seen


def multishot(k):
    """io_uring: one RECV, or RECVMSG, for many datagrams, each in a buffer that the kernel chooses."""
    there, s = k.pair()
    at = ctypes.addressof
    ring = uring.Ring()
    size, number = 8192, 6
    room = ctypes.create_string_buffer(size * number)
    there.setblocking(True)
    error = lambda n: n if n >= 0 else errno.errorcode[-n]

    def provide():
        return error(ring.ask(uring.PROVIDE_BUFFERS, number, length=size, addr=at(room), group=7))

    def got():
        """A completion: its result, the bytes of its buffer, whether there are more, and whether it has a buffer."""
        result, flags = ring.next()
        begin = (flags >> 16) * size
        data = room.raw[begin:begin + max(result, 0)] if flags & uring.BUFFER else b""
        return error(result), data, flags & uring.MORE, flags & uring.BUFFER

    def receive(op, **more):
        ring.submit(op, there.fileno(), ioprio=uring.RECV_MULTISHOT, how=uring.SELECT, group=7, **more)

    seen = {"buffers": provide()}
    s.send(b"one that waits")
    wait(there)
    receive(uring.RECV)
    seen["RECV, one that waits"] = got()
    for n in (1, 5000, 8192):
        s.send(bytes([n % 251]) * n)
        seen[f"RECV, {n} bytes"] = got()
    s.send(b"x" * 9000)
    seen["RECV, one that is too long"] = got()
    s.send(b"the last buffer")
    seen["RECV, the last buffer"] = got()
    s.send(b"without a buffer")
    seen["RECV, no buffer is left"] = got()
    seen["RECV, it is not lost"] = there.recv(100)
    seen["buffers again"] = provide()
    receive(uring.RECV)
    s.send(b"")
    seen["RECV, an empty one"] = got()
    seen["buffers once more"] = provide()
    # Space for the sender's address and no control messages.
    header = ctypes.create_string_buffer(struct.pack("QI4xQQQQI4x", 0, 28, 0, 0, 0, 0, 0), 56)
    receive(uring.RECVMSG, length=1, addr=at(header))

    def message():
        result, data, more, buffer = got()
        if not data:
            return result, more, buffer
        name, control, length, flags = struct.unpack_from("IIII", data)
        port = struct.unpack_from(">H", data, 18)[0]
        return result, name, control, length, flags, port == s.getsockname()[1], data[16 + 28:], more, buffer

    # An empty one ends it.
    for n in (3, 5000, 9000, 0):
        s.send(bytes([n % 251]) * n)
        seen[f"RECVMSG, {n} bytes"] = message()
    return seen


def child(act):
    """The exit status of a child that does it."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(act() or 0)
        except OSError as e:
            os._exit(e.errno or 255)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return errno.errorcode.get(status, status)


def handed(k):
    """Sockets that a child inherits, and that another process is given."""
    there, s = k.pair()

    def answer():
        there.sendto(there.recv(10) + b", by a child", s.getsockname())
        s.send(b"from a child")

    s.send(b"asked")
    seen = {"fork()": (child(answer), s.recv(100), there.recv(100))}
    # The child's are closed now, and the parent's go on.
    s.send(b"after")
    seen["after its end"] = there.recv(10)
    ours, theirs = socket.socketpair()
    at = there.getsockname()

    def given():
        s.close(), there.close()
        got = array.array("i", theirs.recvmsg(1, socket.CMSG_SPACE(4))[1][0][2])
        mine = patient(socket.socket(fileno=got[0]))
        data, peer = mine.recvfrom(10)
        mine.sendto(data + b", given", peer)

    pid = os.fork()
    if pid == 0:
        try:
            given()
        finally:
            os._exit(0)
    ours.sendmsg([b"x"], [(SOL, socket.SCM_RIGHTS, array.array("i", [there.fileno()]))])
    there.close()
    s.send(b"asked")
    seen["SCM_RIGHTS"] = s.recv(100)
    os.waitpid(pid, 0)
    again = k.sock("B")
    seen["the port is free then"] = fails(again.bind, at)
    twin = patient(socket.socket(fileno=os.dup(again.fileno())))
    again.close()
    s.send(b"dup")
    seen["dup()"] = twin.recv(10)
    twin.close()
    ours.close(), theirs.close()
    return seen


def namespaces(k):
    """Two network namespaces, each with its own ports."""
    port = free_port(k, "B")
    in_a, in_b = k.sock("A", (k.any, port)), k.sock("B", (k.any, port))
    seen = {"the same port": in_a.getsockname() == in_b.getsockname()}
    in_a.sendto(b"from A", (k.b, port)), in_b.sendto(b"from B", (k.a, port))
    seen["each gets the other's"] = (in_b.recv(10), in_a.recv(10), nothing(in_a), nothing(in_b))
    in_b.close()
    s = k.client()
    s.sendto(b"x", (k.b, port))
    time.sleep(0.3 * SCALE)
    seen["closed in one, the other gets nothing"] = nothing(in_a)
    return seen


def mapped(k):
    """IPv4 by sockets of IPv6."""
    if k.family == V4:
        return {}
    old = Kind("both" if k.beside else k.proto, V4)
    try:
        there, s = k.sock("B", ("::", 0)), old.client()
        port = there.getsockname()[1]
        s.sendto(b"x", (old.b, port))
        data, peer = there.recvfrom(10)
        seen = {"the sender": (peer[0], peer[1] == s.getsockname()[1])}
        there.sendto(b"back", peer)
        seen["back"] = s.recvfrom(10) == (b"back", (old.b, port))
        ours, v4 = k.sock("A"), old.server()
        at = ("::ffff:" + old.b, v4.getsockname()[1])
        ours.sendto(b"x", at)
        data, peer = v4.recvfrom(10)
        seen["unbound"] = (peer[0] == old.a, ours.getsockname()[0])
        seen["the longest"] = (fails(ours.sendto, bytes(65508), at), fails(ours.sendto, bytes(65507), at))
        v4.recv(70000)
        ours.connect(at)
        seen["connected"] = (ours.getsockname()[0], ours.getpeername()[0])
        ours.send(b"y")
        data, peer = v4.recvfrom(10)
        v4.sendto(data, peer)
        seen["and back"] = ours.recvfrom(10)[1][0]
        bound = k.sock("A", ("::ffff:" + old.a, 0))
        seen["bound"] = bound.getsockname()[0]
        seen["bound, to IPv6"] = (fails(bound.sendto, b"x", (k.b, 9)), fails(bound.connect, (k.b, 9)))
        six = k.client()
        seen["bound to IPv6, to IPv4"] = (fails(six.sendto, b"x", at), fails(six.connect, at))
        only = lambda s: s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        seen["IPV6_V6ONLY"] = fails(k.sock("A", None, only).sendto, b"x", at)
        seen["IPV6_V6ONLY, bind"] = fails(k.sock("A", None, only).bind, ("::ffff:" + old.a, 0))
        both, alone = k.sock("B", ("::", free_port(k, "B")), only), old.sock("B")
        seen["the same port of IPv4"] = fails(alone.bind, ("0.0.0.0", both.getsockname()[1]))
        taken = old.sock("B")
        seen["which else is taken"] = fails(taken.bind, ("0.0.0.0", port))
        asked = k.sock("B", ("::", 0))
        asked.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
        asked.setsockopt(socket.IPPROTO_IP, IP_RECVTTL, 1)
        asked.setsockopt(socket.IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1)
        s.sendto(b"x", (old.b, asked.getsockname()[1]))
        seen["control messages"] = sorted(asked.recvmsg(10, 200)[1])
        return seen
    finally:
        old.close()


@contextlib.contextmanager
def setting(name, value):
    """Host A has this setting of net.ipv4 in the block."""
    path = f"/proc/sys/net/ipv4/{name}"
    with host("A"):
        with open(path) as f:
            before = f.read()
        with open(path, "w") as f:
            f.write(value)
    try:
        yield
    finally:
        with host("A"), open(path, "w") as f:
            f.write(before)


def privileged(k):
    """Ports that only root may have."""
    seen = {}

    def tried(port, uid):
        s = k.sock("A")

        def bind():
            os.setuid(uid)
            s.bind((k.a, port))

        done = child(bind)
        s.close()
        return done

    for start in (None, "90"):
        with setting("ip_unprivileged_port_start", start) if start else contextlib.nullcontext():
            for port, uid in ((80, 0), (80, 65534), (89, 65534), (90, 65534), (1023, 65534), (1024, 65534)):
                seen[f"port {port}, user {uid}, from {start}"] = tried(port, uid)
    return seen


def ranges(k):
    """The ports that are chosen."""
    seen = {}
    with setting("ip_local_port_range", "40000 40007"):
        socks = [k.sock("A", (k.any, 0)) for _ in range(8)]
        seen["the range"] = sorted(s.getsockname()[1] for s in socks)
        seen["one more"] = fails(k.sock("A").bind, (k.any, 0))
        # It is EAGAIN, after which Python waits if there is a time limit.
        seen["one more, by a send"] = fails(patient(k.sock("A")).sendto, b"x", (k.b, 9))
        k.close()
        with setting("ip_local_reserved_ports", "40000-40003,40006"):
            socks = [k.sock("A", (k.any, 0)) for _ in range(3)]
            seen["without the reserved"] = sorted(s.getsockname()[1] for s in socks)
            seen["a reserved one that is asked for"] = fails(k.sock("A").bind, (k.any, 40001))
            seen["and none is left"] = fails(k.sock("A").bind, (k.any, 0))
        k.close()
    two = struct.pack("I", 50001 << 16 | 50000)
    narrow = lambda s: s.setsockopt(socket.IPPROTO_IP, IP_LOCAL_PORT_RANGE, two)
    with setting("ip_local_port_range", "49000 51000"):
        socks = [k.sock("A", (k.any, 0), narrow) for _ in range(2)]
        seen["IP_LOCAL_PORT_RANGE"] = sorted(s.getsockname()[1] for s in socks)
        third = k.sock("A", None, narrow)
        seen["IP_LOCAL_PORT_RANGE, one more"] = fails(third.bind, (k.any, 0))
        seen["IP_LOCAL_PORT_RANGE, read"] = third.getsockopt(socket.IPPROTO_IP, IP_LOCAL_PORT_RANGE)
    return seen


def stamps(k):
    """Control messages of a received datagram: times, hops and classes, one by one and together."""
    there, s = k.pair()
    v6 = socket.IPPROTO_IPV6
    hops = [(0, IP_RECVTTL)] if k.family == V4 else [(v6, IPV6_RECVHOPLIMIT), (v6, IPV6_RECVTCLASS)]
    times = [(SOL, n) for n in (SO_TIMESTAMP, SO_TIMESTAMPNS, SO_TIMESTAMP_NEW, SO_TIMESTAMPNS_NEW)]
    seen = {}

    def received():
        before = time.time()
        s.send(b"x")
        wait(there)
        got = []
        for level, kind, data in there.recvmsg(10, 500)[1]:
            if level == SOL:
                second, part = struct.unpack("qq", data)
                least = 1 if kind in (SO_TIMESTAMP, SO_TIMESTAMP_NEW) else 1000
                stamp = second + part / (1000000 * least)
                # The clock of packets may be a tick behind.
                data = before - 0.1 < stamp <= time.time() and 0 <= part < 1000000 * least
            got.append((level, kind, data))
        return sorted(got)

    for level, kind in hops + times:
        there.setsockopt(level, kind, 1)
        seen[f"{level}, {kind}"] = (there.getsockopt(level, kind), received())
        if level == SOL:
            seen[f"{level}, {kind}: the others"] = [there.getsockopt(*of) for of in times]
            there.setsockopt(level, kind, 0)
            seen[f"{level}, {kind}: cleared"] = (there.getsockopt(level, kind), received())
    there.setsockopt(SOL, SO_TIMESTAMPNS, 1)
    seen["together"] = received()
    for level, kind in hops:
        there.setsockopt(level, kind, 0)
        seen[f"{level}, {kind}: cleared"] = (there.getsockopt(level, kind), received())
    return seen


def asked(k):
    """Options that ask for control messages: a datagram has those of some, and not of the others."""
    there, s = k.pair()
    v6 = socket.IPPROTO_IPV6
    seen = {}

    def received():
        s.send(b"x")
        wait(there)
        # The port differs.
        return [(level, kind, data[:2] + data[4:] if kind == IPV6_RECVORIGDSTADDR else data)
                for level, kind, data in there.recvmsg(10, 500)[1]]

    has = [(SOL, SO_RCVMARK), (SOL, SO_RCVPRIORITY)]
    if k.family == V6:
        has += [(v6, IPV6_2292PKTINFO), (v6, IPV6_2292HOPLIMIT), (v6, IPV6_RECVORIGDSTADDR)]
    for level, kind in has:
        there.setsockopt(level, kind, 1)
        seen[f"{level}, {kind}"] = received()
    seen["the last one"] = there.getsockname()[1] == s.getpeername()[1]
    for level, kind in has:
        there.setsockopt(level, kind, 0)
    for level, kinds in ((0, ONLY_SOME_IP), (v6, ONLY_SOME_IPV6)):
        for kind in kinds if level == 0 or k.family == V6 else ():
            there.setsockopt(level, kind, 1)
    seen["of some packets"] = received()
    return seen


def late(k):
    """With IP_BIND_ADDRESS_NO_PORT a port is taken when one is needed."""
    def bound():
        s = k.sock("A", None, lambda s: s.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1))
        s.bind((k.a, 0))
        return s

    def name(s):
        ip, port = s.getsockname()[:2]
        return ip, port != 0

    there, s = k.server(), bound()
    seen = {"bound": name(s), "bound again": fails(s.bind, (k.a, 0)), "the name": name(s)}
    s.sendto(b"x", there.getsockname())
    seen["has sent"] = name(s)
    wait(there)
    seen["the sender"] = there.recvfrom(10)[1][:2] == s.getsockname()[:2]
    seen["bound with a port"] = fails(s.bind, (k.a, 0))
    s = bound()
    s.connect(there.getsockname())
    seen["connected"] = name(s)
    s = bound()
    port = free_port(k)
    seen["to a port"] = (fails(s.bind, (k.a, port)), s.getsockname()[1] == port)
    return seen


def exceptional(k):
    """select() and poll() of a socket whose error queue has something."""
    level, option = (0, IP_RECVERR) if k.family == V4 else (socket.IPPROTO_IPV6, IPV6_RECVERR)
    s = k.client()
    s.setsockopt(level, option, 1)
    s.connect((k.b, 9))
    seen = {}
    for on in 0, 1:
        s.setsockopt(SOL, SO_SELECT_ERR_QUEUE, on)
        s.send(b"x")
        poll = select.poll()
        poll.register(s, select.POLLPRI)
        seen[f"SO_SELECT_ERR_QUEUE {on}"] = ([events for _, events in poll.poll(20000 * PATIENCE)],
                                             len(select.select([], [], [s], 0)[2]))
        s.getsockopt(SOL, socket.SO_ERROR)
        queued(s)
    return seen


CASES = (several, asynchronous, lends, multishot, handed, namespaces, mapped, privileged, ranges, stamps, asked, late, exceptional)

if __name__ == "__main__":
    run(CASES)
