#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Datagram sockets, compared with UDP's: each case runs with both protocols, from host A to host B,
and must see the same.

  compare.py [--udp] [CASE...]     prints a line for each thing it looked at

--udp: of the sockets of ZRS, with a UDP socket inside.
"""

import ctypes
import errno
import mmap
import os
import select
import socket
import struct
import tempfile
import threading
import time

from kinds import (connect_raw, fails, fionread, free_port, host, libc, nothing, patient, run, wait, PATIENCE, SCALE,
                   SOL, UDP, V4, V6)

SO_TIMESTAMP, SO_RXQ_OVFL, SO_PEEK_OFF = 29, 40, 42
IP_PKTINFO, IP_RECVTOS, IP_RECVORIGDSTADDR = 8, 13, 20
UDP_CORK, UDP_SEGMENT = 1, 103
IP_RECVERR, IPV6_RECVERR, MSG_ERRQUEUE = 11, 25, 0x2000


def sizes(k):
    there, s = k.pair()
    most = 65507 if k.family == V4 else 65527
    seen = {}
    for n in (0, 1, 4095, 4096, 4097, 16384, 16385, 61440, most):
        data = os.urandom(n)
        sent = s.send(data)
        got = there.recv(70000)
        seen[f"{n} bytes"] = (sent, len(got), got == data)
    for n in (most + 1, 65536, 100000):
        seen[f"{n} bytes"] = fails(s.send, bytes(n))
    seen["and the next"] = (s.send(b"next"), there.recv(10))
    return seen


def gathered(k):
    there, s = k.pair()
    parts = [os.urandom(n) for n in (1, 4096, 0, 3000, 20000)]
    s.sendmsg(parts)
    rooms = [bytearray(n) for n in (5, 10000, 1, 30000)]
    n, _, flags, _ = there.recvmsg_into(rooms)
    return {"scattered": (n, flags, b"".join(rooms)[:n] == b"".join(parts))}


def trunc(k):
    there, s = k.pair()
    seen = {}
    for n in (10, 5000, 60000):
        s.send(bytes(range(10)) + bytes(n - 10))
        seen[f"{n} peeked"] = there.recvmsg(4, 0, socket.MSG_PEEK)[::2]
        seen[f"{n} peeked, its length"] = len(there.recv(4, socket.MSG_PEEK | socket.MSG_TRUNC))
        box = bytearray(4)
        seen[f"{n} peeked, MSG_TRUNC"] = there.recv_into(box, 4, socket.MSG_PEEK | socket.MSG_TRUNC)
        n_got, _, flags, _ = there.recvmsg_into([box])
        seen[f"{n} cut"] = (n_got, flags, bytes(box))
        seen[f"{n} once"] = nothing(there)
        s.send(bytes(n))
        seen[f"{n}, MSG_TRUNC"] = there.recv_into(box, 4, socket.MSG_TRUNC)
        s.send(bytes(n))
        s.send(b"x")
        wait(there)
        seen[f"{n}, FIONREAD"] = fionread(there)
        seen[f"{n}, no room"] = there.recvmsg(0)[::2]
        wait(there)
        seen[f"{n}, FIONREAD of the next"] = fionread(there)
        there.recv(1)
        seen[f"{n}, FIONREAD of none"] = fionread(there)
    return seen


def peek_off(k):
    """SO_PEEK_OFF."""
    there, s = k.pair()
    patient(there)
    off = lambda: there.getsockopt(SOL, SO_PEEK_OFF)

    def look(n, flags=0):
        room = bytearray(n)
        got, _, told, _ = there.recvmsg_into([room], 0, socket.MSG_PEEK | flags)
        return bytes(room[:got]), got, told, off()

    def reads(n, flags=0):
        room = bytearray(n)
        return there.recv_into(room, n, flags), bytes(room), off()

    seen = {"at first": off(), "set": (fails(there.setsockopt, SOL, SO_PEEK_OFF, 0), off())}
    for data in b"abcde", b"", b"fgh", bytes(range(250)) * 24:
        s.send(data)
    seen["the parts"] = [look(n) for n in (3, 1, 1, 9, 9)]
    seen["a long one"] = [look(n) for n in (100, 4096, 1804)]
    there.setblocking(False)
    seen["behind all"] = fails(there.recv, 10, socket.MSG_PEEK), off()
    patient(there)
    threading.Timer(0.3 * SCALE, s.send, (b"later",)).start()
    seen["it waits"] = look(9)
    seen["received, but for a part"] = reads(2)
    seen["an empty one, received"] = reads(9)
    there.setblocking(False)
    seen["behind all, by what was cut"] = fails(there.recv, 10, socket.MSG_PEEK), off()
    patient(there)
    seen["set to another place"] = fails(there.setsockopt, SOL, SO_PEEK_OFF, 2), look(10)
    seen["MSG_TRUNC"] = look(3, socket.MSG_TRUNC), fails(there.setsockopt, SOL, SO_PEEK_OFF, 5), look(3, socket.MSG_TRUNC)
    seen["received, MSG_TRUNC"] = reads(2, socket.MSG_TRUNC)
    seen["none any more"] = fails(there.setsockopt, SOL, SO_PEEK_OFF, -1), off(), look(2), look(2)
    seen["the others"] = reads(6000), off(), reads(9), off()
    return seen


def order(k):
    there, s = k.pair()
    got = []
    for first in range(0, 100, 20):
        for i in range(first, first + 20):
            s.send(struct.pack("I", i) + bytes(i % 7 * 1000))
        got += [struct.unpack("I", there.recv(10000)[:4])[0] for _ in range(20)]
    return {"in order": got == list(range(100))}


def names(k):
    there, s = k.server(), k.sock("A")
    seen = {"unbound": s.getsockname()[:2], "no peer": fails(s.getpeername)}
    s.sendto(b"x", there.getsockname())
    data, peer = there.recvfrom(10)
    seen["bound by sendto()"] = s.getsockname()[0] == k.any and s.getsockname()[1] != 0
    seen["the sender"] = (peer[0] == k.a, peer[1] == s.getsockname()[1])
    there.sendto(b"y", peer)
    seen["back"] = s.recvfrom(10) == (b"y", there.getsockname())
    s.connect(there.getsockname())
    seen["connected: own address"] = s.getsockname()[0] == k.a
    seen["connected: the peer's"] = s.getpeername() == there.getsockname()
    return seen


def connected(k):
    there, other, s = k.server(), k.server(), k.client()
    s.connect(there.getsockname())
    other.sendto(b"other", s.getsockname())
    there.sendto(b"peer", s.getsockname())
    seen = {"only the peer's": (s.recv(10), nothing(s))}
    s.sendto(b"elsewhere", other.getsockname())
    seen["sendto() another"] = other.recv(20)
    s.connect(other.getsockname())
    s.send(b"again")
    seen["connected again"] = other.recv(20)
    unspec = struct.pack("H14x", socket.AF_UNSPEC)
    port = s.getsockname()[1]
    seen["AF_UNSPEC"] = connect_raw(s, unspec)
    seen["no peer"] = (fails(s.getpeername), fails(s.send, b"x"))
    # With a UDP socket inside the port stays: it is that of both.
    stays = not k.beside and s.getsockname()[1] in (0, port)
    seen["the address stays"] = (s.getsockname()[0] == k.a, stays)
    seen["AF_UNSPEC once more"] = connect_raw(s, unspec)
    s.sendto(b"free", there.getsockname())
    data, peer = there.recvfrom(10)
    other.sendto(b"all", peer)
    seen["and takes from all"] = (data, s.recv(10))
    fixed = k.sock("A", (k.any, 0))
    fixed.close()
    fixed = k.sock("A", (k.any, free_port(k)))
    port = fixed.getsockname()[1]
    fixed.connect(there.getsockname())
    seen["a bound port, connected"] = fixed.getsockname()[0] == k.a
    connect_raw(fixed, unspec)
    seen["a bound port, dissolved"] = (fixed.getsockname()[0] == k.any, fixed.getsockname()[1] == port)
    return seen


def polled(poll, longest=[20000 * PATIENCE]):
    """The events of a socket that must have some soon. After one that had none the others get less time, so that all
    cases come to their end."""
    events = [seen for _, seen in poll.poll(longest[0])]
    if not events:
        longest[0] = 1000 * SCALE
    return events


def errors(k):
    there, s = k.server(), k.client()
    at = there.getsockname()
    seen = {
        "no address": fails(s.send, b"x"),
        "port 0": fails(s.sendto, b"x", (k.b, 0)),
        "MSG_OOB": fails(s.sendto, b"x", socket.MSG_OOB, at),
        "listen()": fails(s.listen),
        "accept()": fails(patient(s).accept),
        "bind() again": fails(s.bind, (k.a, 0)),
        "not an own address": fails(k.sock("A").bind, (k.b, 0)),
        "in use": fails(k.sock("B").bind, at),
        "a short address": connect_raw(s, struct.pack("H2x", k.family)),
        "another family": connect_raw(s, struct.pack("H126x", socket.AF_UNIX)),
    }
    s.settimeout(20 * PATIENCE)
    # By IPv6 the one with MSG_OOB was sent. If it arrived after the close, it would be refused as well,
    # and its error would be one more for the connected socket.
    sent = seen["MSG_OOB"] == "no error"
    seen["MSG_OOB, received"] = there.recv(10) if sent else None
    there.close()
    s.connect(at)
    seen["refused: the send"] = s.send(b"x")
    seen["refused: the receive"] = fails(s.recv, 10)
    seen["once"] = nothing(s)
    time.sleep(0.2)  # a host answers once in 100 ms
    s.send(b"x")
    poll = select.poll()
    poll.register(s, 0)
    seen["refused: poll()"] = polled(poll)
    seen["refused: SO_ERROR"] = errno.errorcode.get(s.getsockopt(SOL, socket.SO_ERROR))
    seen["SO_ERROR once"] = s.getsockopt(SOL, socket.SO_ERROR)
    time.sleep(0.2)
    s.send(b"x")
    polled(poll)
    seen["refused: the next send"] = fails(s.send, b"x")
    free = k.client()
    free.sendto(b"x", at)
    time.sleep(0.3)
    seen["without a peer: no error"] = (
        nothing(free), free.getsockopt(SOL, socket.SO_ERROR))
    return seen


def binds(k):
    def reuse(option):
        return lambda s: s.setsockopt(SOL, option, 1)

    seen = {}
    cases = {"nothing": lambda s: None, "SO_REUSEADDR": reuse(socket.SO_REUSEADDR),
             "SO_REUSEPORT": reuse(socket.SO_REUSEPORT)}
    for one, first in cases.items():
        for two, second in cases.items():
            for at in (k.a, k.any):
                s = k.sock("A", (k.a, 0), first)
                again = k.sock("A", None, second)
                where = "the same address" if at == k.a else "all addresses"
                seen[f"{one}, then {two}, {where}"] = fails(again.bind, (at, s.getsockname()[1]))
                again.close(), s.close()
    first = k.sock("B", (k.b, 0), cases["SO_REUSEADDR"])
    second = k.sock("B", first.getsockname(), cases["SO_REUSEADDR"])
    s = k.client()
    s.sendto(b"last", first.getsockname())
    seen["the last one gets it"] = (second.recv(10), nothing(first))
    wild = k.sock("B", (k.any, 0))
    s.sendto(b"wild", (k.b, wild.getsockname()[1]))
    seen["all addresses"] = wild.recv(10)
    seen["SO_REUSEPORT spreads"] = spread(k)
    return seen


def spread(k):
    reuse = lambda s: s.setsockopt(SOL, socket.SO_REUSEPORT, 1)
    first = k.sock("B", (k.b, 0), reuse)
    servers = [first] + [k.sock("B", first.getsockname(), reuse) for _ in range(2)]
    number = 30
    for _ in range(number):
        s = k.client()
        s.sendto(b"x", first.getsockname())
    got = dict.fromkeys(servers, 0)
    while sum(got.values()) < number and (readable := select.select(servers, [], [], 20 * PATIENCE)[0]):
        for s in readable:
            s.recv(70000)
            got[s] += 1
    return (sum(got.values()), min(got.values()) > 0, [nothing(s) for s in servers])


def shut(k):
    there, s = k.pair()
    seen = {}
    poll = select.poll()
    poll.register(s, select.POLLIN | select.POLLOUT | select.POLLRDHUP)
    look = lambda: [events for _, events in poll.poll(0)]
    seen["poll()"] = look()
    s.shutdown(socket.SHUT_WR)
    seen["after SHUT_WR"] = (look(), fails(s.send, b"x"))
    there.sendto(b"still", s.getsockname())
    seen["still receives"] = s.recv(10)
    s.shutdown(socket.SHUT_RD)
    # With a time limit, Python would try again after EAGAIN.
    seen["after SHUT_RD"] = (look(), patient(s).recv(10), nothing(s))
    free = k.client()
    seen["without a peer"] = fails(free.shutdown, socket.SHUT_RDWR)
    blocked = patient(k.client())
    ended = []
    thread = threading.Thread(target=lambda: ended.append(blocked.recv(10)))
    blocked.connect(there.getsockname())
    thread.start()
    thread.join(0.2)
    waits = thread.is_alive()
    blocked.shutdown(socket.SHUT_RD)
    thread.join(20 * PATIENCE)
    seen["wakes a receiver"] = (waits, ended)
    return seen


def ready(k):
    there, s = k.pair()
    level, edge = select.epoll(), select.epoll()
    level.register(there, select.EPOLLIN)
    edge.register(there, select.EPOLLIN | select.EPOLLET)
    events = lambda found: [event for _, event in found]
    seen = {"before": (level.poll(0), edge.poll(0))}
    s.send(b"x")
    seen["epoll"] = events(level.poll(20 * PATIENCE))
    seen["edge"] = events(edge.poll(20 * PATIENCE))
    seen["edge once"] = events(edge.poll(0))
    s.send(b"y")
    seen["edge again"] = events(edge.poll(20 * PATIENCE))
    there.recv(10), there.recv(10)
    seen["after"] = (level.poll(0), edge.poll(0))
    there.settimeout(0.1)
    seen["a time limit"] = fails(there.recv, 10)
    seen["not blocking"] = nothing(there)
    there.setblocking(True)
    seen["MSG_DONTWAIT"] = fails(there.recv, 10, socket.MSG_DONTWAIT)
    return seen


def states(k):
    """What poll(), epoll and select() say of a socket in each state, of all events that there are."""
    every = 0x7ff | select.POLLRDHUP
    seen = {}

    def look(state, s):
        poll, level = select.poll(), select.epoll()
        poll.register(s, every & ~(select.POLLERR | select.POLLHUP | select.POLLNVAL))
        level.register(s, every)
        events = lambda found: [event for _, event in found]
        sets = [bool(found) for found in select.select([s], [s], [s], 0)]
        seen[state] = events(poll.poll(0)), events(level.poll(0)), sets

    look("fresh", k.sock("A"))
    look("bound", k.client())
    there, s = k.pair()
    look("a server", there)
    look("connected", s)
    for state, data in ("a datagram waits", b"x"), ("an empty one waits", b""), ("a long one waits", bytes(20000)):
        s.send(data)
        wait(there)
        look(state, there)
        there.recv(70000)
        look(f"{state}: received", there)
    for how, name in (socket.SHUT_WR, "SHUT_WR"), (socket.SHUT_RD, "SHUT_RD"), (socket.SHUT_RDWR, "SHUT_RDWR"):
        for unread in False, True:
            end, other = k.pair()
            if unread:
                end.sendto(b"unread", other.getsockname())
                wait(other)
            other.shutdown(how)
            look(f"{name}, unread data: {unread}", other)
            if unread:
                other.recv(10)
                look(f"{name}, and it is read", other)
            end.close(), other.close()
    at = there.getsockname()
    there.close()
    s.send(b"refused")
    poll = select.poll()
    poll.register(s, 0)
    polled(poll)
    look("refused", s)
    s.getsockopt(SOL, socket.SO_ERROR)
    look("refused, the error is taken", s)
    s.connect(at)
    connect_raw(s, struct.pack("H14x", socket.AF_UNSPEC))
    look("without a peer again", s)
    return seen


def cmsgs(k):
    def ask(s):
        s.setsockopt(SOL, SO_TIMESTAMP, 1)
        s.setsockopt(SOL, SO_RXQ_OVFL, 1)
        if k.family == V4:
            s.setsockopt(socket.IPPROTO_IP, IP_PKTINFO, 1)
            s.setsockopt(socket.IPPROTO_IP, IP_RECVORIGDSTADDR, 1)
            s.setsockopt(socket.IPPROTO_IP, IP_RECVTOS, 1)
        else:
            s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)

    there, s = k.sock("B", (k.any, 0), ask), k.client()
    port = there.getsockname()[1]
    s.sendto(b"x", (k.b, port))
    found = {(level, kind): data for level, kind, data in there.recvmsg(10, 1000)[1]}
    stamp = found.pop((SOL, SO_TIMESTAMP), bytes(16))
    seen = {"SO_TIMESTAMP": abs(struct.unpack("qq", stamp)[0] - time.time()) < 60 * SCALE}
    if k.family == V4:
        orig = found.get((socket.IPPROTO_IP, IP_RECVORIGDSTADDR), b"")
        seen["the port"] = orig[2:4] == struct.pack(">H", port)
        found[(socket.IPPROTO_IP, IP_RECVORIGDSTADDR)] = orig[:2] + orig[4:]
    seen["the others"] = found
    seen["cut"] = there_cut(k, there, s, port)
    return seen


def there_cut(k, there, s, port):
    s.sendto(b"x", (k.b, port))
    data, found, flags, _ = there.recvmsg(10, 8)
    return (data, len(found), flags)


def options(k):
    s = k.sock("A")
    seen = {}
    for name, level, option in (
        ("SO_TYPE", SOL, socket.SO_TYPE), ("SO_DOMAIN", SOL, socket.SO_DOMAIN),
        ("SO_RCVBUF", SOL, socket.SO_RCVBUF), ("SO_SNDBUF", SOL, socket.SO_SNDBUF),
        ("SO_ACCEPTCONN", SOL, socket.SO_ACCEPTCONN), ("IP_TTL", 0, socket.IP_TTL),
        ("IP_PKTINFO", 0, IP_PKTINFO), ("IP_TOS", 0, socket.IP_TOS),
    ):
        seen[name] = s.getsockopt(level, option)
    s.setsockopt(SOL, socket.SO_RCVBUF, 50000)
    seen["SO_RCVBUF, set"] = s.getsockopt(SOL, socket.SO_RCVBUF)
    s.setsockopt(0, IP_PKTINFO, 1)
    seen["IP_PKTINFO, set"] = s.getsockopt(0, IP_PKTINFO)
    if k.family == V6:
        for option in (socket.IPV6_V6ONLY, socket.IPV6_RECVPKTINFO, socket.IPV6_UNICAST_HOPS):
            seen[f"IPV6 {option}"] = s.getsockopt(socket.IPPROTO_IPV6, option)
    seen["unknown"] = fails(s.getsockopt, SOL, 12345)
    return seen


def unread(k):
    """A datagram that the program's memory is not there for."""
    there, s = k.pair()
    libc.send.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    fresh = mmap.mmap(-1, 65536)
    addr = ctypes.addressof(ctypes.c_char.from_buffer(fresh))
    seen = {"pages not touched yet": (libc.send(s.fileno(), addr, 20000, 0), there.recv(30000) == bytes(20000))}
    libc.send(s.fileno(), 4096, 20000, 0)
    seen["a bad address"] = errno.errorcode.get(ctypes.get_errno())
    s.send(b"next")
    seen["the next"] = there.recv(10)
    return seen


def memory(k):
    """Receives into memory, and with a name, a list and control messages, that are not there: what takes
    the datagram, and whether it counts as dropped."""
    there, s = k.pair()
    # So that there are control messages.
    for option in SO_RXQ_OVFL, SO_TIMESTAMP:
        there.setsockopt(SOL, option, 1)
    libc.recvmsg.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int]
    room = ctypes.create_string_buffer(30000)
    good, bad = ctypes.addressof(room), 4096
    counted = 0

    def receive(parts, name=0, vec=0, control=0, flags=0):
        parts = b"".join(struct.pack("PN", *part) for part in parts)
        hdr = struct.pack("PIPNPNi4x", name, 128 if name else 0, vec or address(parts), len(parts) // 16, control,
                          100 if control else 0, 0)
        n = libc.recvmsg(there.fileno(), address(hdr), flags | socket.MSG_DONTWAIT)
        return n if n >= 0 else errno.errorcode[ctypes.get_errno()]

    def rest():
        """The lengths of what is in the queue up to a last one, and the number of drops since the last time."""
        nonlocal counted
        s.send(b"last")
        got, was = [], counted
        while got[-1:] != [4]:
            data, found, _, _ = there.recvmsg(30000, 100)
            got.append(len(data))
            counted = max([counted] + [struct.unpack("I", d)[0] for _, kind, d in found if kind == SO_RXQ_OVFL])
        return got, counted - was

    all_bad, half_bad = [(bad, 30000)], [(good, 5), (bad, 30000)]
    cases = {"good memory": ([(good, 30000)],), "bad memory": (all_bad,), "half of it bad": (half_bad,),
             "bad, peeked": (all_bad, 0, 0, 0, socket.MSG_PEEK), "bad, MSG_TRUNC": (all_bad, 0, 0, 0, socket.MSG_TRUNC),
             "bad, no room": ([(bad, 0)],), "a bad name": ([(good, 30000)], bad), "a bad list": ([(good, 1)], 0, bad),
             "bad control messages": ([(good, 30000)], 0, 0, bad), "bad memory and name": (all_bad, bad)}
    seen = {}
    for n in (0, 10, 20000):
        for text, case in cases.items():
            s.send(bytes(n))
            wait(there)
            seen[f"{n} bytes, {text}"] = (receive(*case), rest())
    return seen


def address(data):
    """Of bytes, which the caller keeps."""
    return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value


def flags(k):
    """Each flag, of a send and of a receive."""
    there, s = k.pair()
    seen = {}
    for bit in range(31):
        flag = 1 << bit
        if flag == socket.MSG_OOB:
            continue
        done = fails(s.send, b"a", flag)
        s.send(b"z")
        got = [there.recv(10)]
        while not got[-1].endswith(b"z"):
            got.append(there.recv(10))
        seen[f"send, {flag:#x}"] = (done, got)
    for bit in range(31):
        s.send(b"abc")
        s.send(b"z")
        wait(there)
        flag = 1 << bit
        box = bytearray(2)
        # With a time limit, Python tries again after EAGAIN.
        there.setblocking(False)
        try:
            done = there.recvmsg_into([box], 0, flag)[::2]
        except OSError as e:
            done = errno.errorcode[e.errno]
        there.settimeout(20 * PATIENCE)
        got = [there.recv(10)]
        while got[-1] != b"z":
            got.append(there.recv(10))
        seen[f"recv, {flag:#x}"] = (done, bytes(box), got)
    return seen


def segment(k):
    """One send, several datagrams."""
    there, s = k.pair()
    at = there.getsockname()

    def parts(n):
        return [there.recv(70000) for _ in range(n)] + [nothing(there)]

    seen = {"at first": s.getsockopt(UDP, UDP_SEGMENT)}
    for size in (-1, 65536):
        seen[f"{size} bytes each"] = fails(s.setsockopt, UDP, UDP_SEGMENT, size)
    seen["a short value"] = fails(s.setsockopt, UDP, UDP_SEGMENT, b"ab")
    s.setsockopt(UDP, UDP_SEGMENT, 4)
    seen["set"] = s.getsockopt(UDP, UDP_SEGMENT)
    for data in (b"", b"a", b"aaaa", b"aaaab", b"aaaabbbb", b"aaaabbbbcc"):
        sent = s.send(data)
        seen[f"{len(data)} by 4"] = (sent, parts(max(1, -(-len(data) // 4))))
    sent = s.sendmsg([b"aaa", b"abbbb", b"c"], [], 0, at)
    seen["scattered"] = (sent, parts(3))
    data = os.urandom(4 * 128)
    sent = s.send(data)
    seen["128 of them"] = (sent, b"".join(there.recv(10) for _ in range(128)) == data, nothing(there))
    seen["129 of them"] = fails(s.send, bytes(4 * 128 + 1))
    s.setsockopt(UDP, UDP_SEGMENT, 1000)
    data = os.urandom(60500)
    sent = s.send(data)
    seen["60500 by 1000"] = (sent, b"".join(there.recv(2000) for _ in range(61)) == data)
    seen["too long"] = fails(s.send, bytes(65528))
    of = lambda value: [(UDP, UDP_SEGMENT, value)]
    sent = s.sendmsg([b"aabbc"], of(struct.pack("H", 2)))
    seen["a control message"] = (sent, parts(3))
    s.sendmsg([bytes(1500)], of(struct.pack("H", 0)))
    seen["a control message with 0"] = parts(1)
    s.setsockopt(UDP, UDP_SEGMENT, 0)
    s.sendmsg([b"aabb"], of(struct.pack("H", 2)))
    seen["a control message alone"] = parts(2)
    s.send(b"whole")
    seen["then not"] = parts(1)
    seen["unknown"] = (fails(s.getsockopt, UDP, 99), fails(s.setsockopt, UDP, 99, 1))
    return seen


def cork(k):
    """Several sends, one datagram."""
    there, other, s = k.server(), k.server(), k.client()
    at = there.getsockname()
    # UDP gives no POLLOUT while much is corked, which Python would wait for with a time limit.
    patient(s)
    more = socket.MSG_MORE
    got = lambda: (there.recv(70000), nothing(there))
    seen = {"at first": s.getsockopt(UDP, UDP_CORK)}
    seen["MSG_MORE"] = (s.sendto(b"one ", more, at), nothing(there), s.sendto(b"two", at), got())
    s.sendto(b"to the first's ", more, at)
    s.sendto(b"address", other.getsockname())
    seen["another address"] = (got(), nothing(other))
    s.connect(at)
    s.send(b"a", more), s.send(b"", more), s.send(b"b")
    seen["an empty part"] = got()
    s.send(b"", more)
    s.send(b"alone")
    seen["an empty beginning"] = got()
    s.send(b"ends ", more)
    s.send(b"")
    seen["an empty end"] = got()
    # It says MSG_MORE, and then that there is no more, which UDP hears by IPv4 only.
    if k.family == V4:
        with tempfile.TemporaryFile() as file:
            file.write(b"from a file")
            file.flush()
            sent = lambda: os.sendfile(s.fileno(), file.fileno(), 0, 100)
            seen["sendfile() beyond the end"] = (sent(), got())
            s.setsockopt(UDP, UDP_CORK, 1)
            seen["sendfile(), corked"] = (sent(), nothing(there))
            s.setsockopt(UDP, UDP_CORK, 0)
            seen["sendfile(), uncorked"] = got()
    s.setsockopt(UDP, UDP_CORK, 1)
    seen["UDP_CORK, set"] = s.getsockopt(UDP, UDP_CORK)
    s.send(b"one "), s.send(b"two "), s.sendmsg([b"th", b"ree"])
    seen["corked"] = nothing(there)
    s.setsockopt(UDP, UDP_CORK, 0)
    seen["sent"] = got()
    seen["UDP_CORK, cleared"] = s.getsockopt(UDP, UDP_CORK)
    s.setsockopt(UDP, UDP_CORK, 1)
    s.setsockopt(UDP, UDP_CORK, 0)
    seen["nothing corked"] = nothing(there)
    s.send(b"kept", more)
    s.setsockopt(UDP, UDP_CORK, 0)
    seen["MSG_MORE ended by UDP_CORK"] = got()
    most = 65507 if k.family == V4 else 65527
    data = os.urandom(most)
    for i in range(0, most, 16000):
        s.send(data[i:i + 16000], more if i + 16000 < most else 0)
    seen["the most"] = got() == (data, "EAGAIN")
    s.send(bytes(most), more)
    seen["one more"] = fails(s.send, b"x")
    seen["all of it is gone"] = nothing(there)
    s.send(b"next")
    seen["the next"] = got()
    s.send(b"aaaab", more)
    s.setsockopt(UDP, UDP_SEGMENT, 4)
    s.send(b"bbb")
    seen["not cut later"] = got()
    s.send(b"aaaab", more)
    s.send(b"bbb")
    seen["cut"] = (there.recv(10), there.recv(10), nothing(there))
    s.setsockopt(UDP, UDP_SEGMENT, 0)
    s.send(b"lost", more)
    s.close()
    seen["closed"] = nothing(there)
    return seen


def controls(k):
    """Control messages of sendmsg()."""
    there, s = k.pair()
    number = lambda n: struct.pack("i", n)
    if k.family == V4:
        info = lambda dev, ip: struct.pack("I4s4x", dev, socket.inet_pton(V4, ip))
        level, kinds = 0, {"TTL": 2, "TOS": 1, "PKTINFO": 8}
    else:
        info = lambda dev, ip: struct.pack("16sI", socket.inet_pton(V6, ip), dev)
        level, kinds = socket.IPPROTO_IPV6, {"TTL": 52, "TOS": 67, "PKTINFO": 50, "DONTFRAG": 62}
    seen = {}

    def one(text, level, kind, value):
        done = fails(s.sendmsg, [b"x"], [(level, kind, value)])
        seen[text] = (done, done == "no error" and there.recv(10))

    for name in kinds:
        if name != "PKTINFO":
            # By IPv6 a hop limit of 0 is taken, but its packet need not arrive.
            for n in (-2, -1, 0, 1, 2, 255, 256):
                if (n, name, k.family) == (0, "TTL", V6):
                    continue
                one(f"{name} {n}", level, kinds[name], number(n))
            for value in (b"", b"a", b"ab", bytes(8)):
                one(f"{name}, {len(value)} bytes", level, kinds[name], value)
    own, none = k.a, k.any
    one("PKTINFO with nothing", level, kinds["PKTINFO"], info(0, none))
    one("PKTINFO with the own address", level, kinds["PKTINFO"], info(0, own))
    one("PKTINFO with the peer's address", level, kinds["PKTINFO"], info(0, k.b))
    one("PKTINFO, short", level, kinds["PKTINFO"], info(0, none)[:-1])
    with host("A"):
        device = next(n for n, name in socket.if_nameindex() if name != "lo" and reaches(k, n))
    one("PKTINFO with the interface", level, kinds["PKTINFO"], info(device, none))
    one("an unknown one", level, 99, number(1))
    one("of the other family", 0 if level else socket.IPPROTO_IPV6, 99, number(1))
    one("of SOL_SOCKET", SOL, 99, number(1))
    one("of SOL_UDP", UDP, 99, number(1))
    one("of TCP", socket.IPPROTO_TCP, 1, number(1))
    for n in (0, 1, 4):
        one(f"UDP_SEGMENT, {n} bytes", UDP, UDP_SEGMENT, bytes(n))
    both = [(level, kinds["TOS"], number(0)), (UDP, UDP_SEGMENT, struct.pack("H", 2))]
    seen["two of them"] = (s.sendmsg([b"aabb"], both), there.recv(10), there.recv(10))
    seen["one good, one bad"] = fails(s.sendmsg, [b"x"], both + [(level, 99, b"")])
    free = k.sock("A", (k.any, 0))
    free.sendmsg([b"x"], [(level, kinds["PKTINFO"], info(0, own))], 0, there.getsockname())
    seen["the source"] = there.recvfrom(10)[1][0] == own
    return seen


def reaches(k, device):
    """Whether the way from A to B leads over an interface of A, which the caller is in."""
    s = socket.socket(k.family, socket.SOCK_DGRAM, UDP)
    s.setsockopt(SOL, socket.SO_BINDTODEVICE, socket.if_indextoname(device).encode())
    try:
        s.connect((k.b, 9))
        return s.getsockname()[0] == k.a
    except OSError:
        return False
    finally:
        s.close()


def recverr(k):
    """The error queue."""
    level, option = (0, IP_RECVERR) if k.family == V4 else (socket.IPPROTO_IPV6, IPV6_RECVERR)
    there, s, free = k.server(), k.client(), k.sock("A")
    at = there.getsockname()
    # A host without any socket of ZRS refuses links: nothing can be asked of its ports.
    k.server()
    there.close()
    seen = {"at first": s.getsockopt(level, option)}
    for one in s, free:
        one.setsockopt(level, option, 1)
    seen["set"] = s.getsockopt(level, option)
    seen["an empty queue"] = queued(s, at)

    def refused(one, *to):
        """Sends, and waits for the error. A host answers once in 100 ms."""
        time.sleep(0.2)
        one.sendto(b"x", *to) if to else one.send(b"x")
        poll = select.poll()
        poll.register(one, 0)
        return polled(poll)

    s.connect(at)
    error = lambda one: errno.errorcode.get(one.getsockopt(SOL, socket.SO_ERROR), "none")
    seen["connected"] = (refused(s), queued(s, at), error(s), queued(s, at))
    seen["the error first"] = (refused(s), error(s), error(s), queued(s, at), queued(s, at))
    seen["a receive first"] = (refused(s), fails(s.recv, 10), nothing(s), queued(s, at))
    seen["a send first"] = (refused(s), fails(s.send, b"x"), queued(s, at))
    seen["without a peer"] = (refused(free, at), fails(free.sendto, b"x", at), queued(free, at))
    seen["without a peer, the queue"] = (refused(free, at), queued(free, at), error(free))
    refused(s)
    s.setsockopt(level, option, 0)
    seen["cleared"] = (s.getsockopt(level, option), queued(s, at), error(s))
    seen["as before"] = (refused(s), queued(s, at), error(s))
    return seen


def queued(s, at):
    """What the error queue has, but for the bytes of the datagram."""
    try:
        _, found, flags, name = patient(s).recvmsg(100, 500, MSG_ERRQUEUE)
    except OSError as e:
        return errno.errorcode[e.errno]
    finally:
        s.settimeout(20 * PATIENCE)
    said = [(level, kind, struct.unpack_from("IBBBBII", value), value[16:]) for level, kind, value in found]
    return (flags, name[:2] == at[:2], said)


def link_local(name):
    """The link-local address of a host, and the number of its interface."""
    nic = f"v{name.lower()}"
    with host(name):
        index = socket.if_nametoindex(nic)
        with open("/proc/net/if_inet6", encoding="ascii") as table:
            lines = [line.split() for line in table]
    text = next(words[0] for words in lines if words[3] == "20" and words[5] == nic)
    return socket.inet_ntop(V6, bytes.fromhex(text)), index


def scoped(k):
    """Link-local addresses, which are one interface's."""
    if k.family == V4:
        return {}
    (a, va), (b, vb) = link_local("A"), link_local("B")
    seen = {"bind() without an interface": fails(k.sock("B").bind, (b, 0))}
    seen["bind() at another one"] = fails(k.sock("B").bind, (b, 0, 0, 1))
    there = k.sock("B", (b, 0, 0, vb))
    port = there.getsockname()[1]
    seen["getsockname()"] = there.getsockname()[0] == b, there.getsockname()[3] == vb
    s = k.sock("A")
    seen["one that is not there"] = fails(s.sendto, b"1", (b, port, 0, 9999))
    s.sendto(b"2", (b, port, 0, va))
    data, name = there.recvfrom(10)
    seen["sendto()"] = data, name[0] == a, name[3] == vb
    there.sendto(b"3", name)
    data, name = s.recvfrom(10)
    seen["the answer"] = data, name[0] == b, name[1] == port, name[3] == va
    bound = k.sock("A", before=lambda s: s.setsockopt(SOL, socket.SO_BINDTODEVICE, b"va"))
    bound.sendto(b"4", (b, port))
    seen["of a socket at an interface"] = there.recv(10)
    s.connect((b, port, 0, va))
    s.send(b"5")
    seen["connect()"] = there.recv(10), s.getpeername()[3] == va, s.getsockname()[0] == a, s.getsockname()[3] == va
    seen["connect() without an interface"] = fails(k.sock("A").connect, (b, port))
    return seen


CASES = (sizes, gathered, trunc, peek_off, order, names, connected, errors, binds, shut, ready, states, cmsgs, options, unread, memory,
         flags, segment, cork, controls, scoped, recverr)

if __name__ == "__main__":
    # With UDP inside, the error is the outer socket's already when the queue of the inner one is read. Datagrams
    # may overtake each other when RDMA takes over, and those of one queue do not tell the drops of the other.
    run(CASES, not_beside=(recverr, order, flags, memory))
