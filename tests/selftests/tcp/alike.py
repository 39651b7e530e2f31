#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""What TCP can do, in host A: each case runs with a TCP socket, with sockets of ours that TCP carries
from connect() on or after an attempt with ZRS, and with a TCP connection accepted from a listener for
both. All have to see what the first has seen. Prints a line for each thing it looked at.
"""

import array
import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import select
import signal
import socket
import struct
import sys
import termios
import threading
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from hosts import becomes, check, fails, host, skip, PATIENCE
import nft
import uring

TCP, ZRS = 6, 253
SOL, SOL_ZRS, ZRS_INFO, ZRS_TCP = socket.SOL_SOCKET, 0x5A52, 2, 3
NEVER, AUTO, ONLY = 0, 1, 3
BY_ZRS, BY_TCP, ASKED = 1, 2, 1
FASTOPEN, PEEK_OFF = 0x20000000, 42  # MSG_FASTOPEN, SO_PEEK_OFF
V4, V6 = socket.AF_INET, socket.AF_INET6
A, B, A6, B6 = (os.environ[f"ADDR{v}_{host}"] for v in ("", "6") for host in "AB")
SOON = 20 * PATIENCE
ULP, SOL_TLS, TLS_TX, TLS_RX = 31, 282, 1, 2
USER = 1234


def new(proto, mode=None, family=V4, where="A"):
    with host(where):
        s = socket.socket(family, socket.SOCK_STREAM, proto)
    if mode is not None:
        s.setsockopt(SOL_ZRS, ZRS_TCP, mode)
    s.settimeout(SOON)
    return s


def listener(s, at):
    s.bind(at)
    s.listen(16)
    return s


# How the socket under test is made: the protocol and the mode of the one that connects, and whether
# the other end is under test.
KINDS = {
    "TCP": (TCP, None, False),
    "carried": (ZRS, AUTO, False),
    "carried at once": (ZRS, ONLY, False),
    "accepted": (TCP, None, True),
}


def pair(kind, family=V4, before=lambda s: None):
    """Two ends of a connection: one in host A, which is under test, and one of TCP in host B. `before`
    is called with the former, or its listener, before it connects."""
    proto, mode, accepted = KINDS[kind]
    if accepted:
        there = new(ZRS, AUTO, family)
        before(there)
        listener(there, (A if family == V4 else A6, 0))
        t = new(TCP, None, family, "B")
        t.connect(there.getsockname())
        s = there.accept()[0]
    else:
        there = listener(new(TCP, None, family, "B"), (B if family == V4 else B6, 0))
        s = new(proto, mode, family)
        before(s)
        s.connect(there.getsockname())
        t = there.accept()[0]
    s.settimeout(SOON)
    t.settimeout(SOON)
    return s, t


def compare(case, kinds=tuple(KINDS)[1:]):
    try:
        want = case("TCP")
    except Unfit as why:
        skip(case.__name__, why)
        return
    for kind in kinds:
        seen = case(kind)
        for key, value in want.items():
            check(f"{case.__name__}, {kind}: {key}", seen[key], value)


class Unfit(Exception):
    """The kernel does not have what the case looks at."""


def read(s, n):
    got = b""
    while len(got) < n:
        part = s.recv(n - len(got))
        if not part:
            break
        got += part
    return got


def number(s, cmd):
    buf = array.array("i", [-1])
    fcntl.ioctl(s, cmd, buf)
    return buf[0]


def polled(s, ms=0):
    poll = select.poll()
    poll.register(s, select.POLLIN | select.POLLOUT | select.POLLRDHUP | select.POLLPRI)
    return [e for _, e in poll.poll(ms)]


def tls(kind):
    """Records of TLS 1.2 made by the kernel, on both ends."""
    s, t = pair(kind)
    if fails(s.setsockopt, TCP, ULP, b"tls") != "no error" and kind == "TCP":
        raise Unfit("this kernel has no TLS")
    t.setsockopt(TCP, ULP, b"tls")
    keys = [struct.pack("HH", 0x0303, 51) + bytes([n]) * 36 for n in (1, 2)]
    for x, (tx, rx) in ((s, (TLS_TX, TLS_RX)), (t, (TLS_RX, TLS_TX))):
        x.setsockopt(SOL_TLS, tx, keys[0])
        x.setsockopt(SOL_TLS, rx, keys[1])
    epoll = select.epoll()
    epoll.register(s, select.EPOLLIN | select.EPOLLET)
    epoll.poll(0)
    load = os.urandom(100000)
    threads = [threading.Thread(target=x.sendall, args=(load,)) for x in (s, t)]
    [x.start() for x in threads]
    seen = {"epoll": [e for _, e in epoll.poll(SOON)]}
    seen["both ways at once"] = (read(t, len(load)) == load, read(s, len(load)) == load)
    [x.join() for x in threads]
    with open(__file__, "rb") as f:
        size = os.fstat(f.fileno()).st_size
        seen["sendfile()"] = os.sendfile(s.fileno(), f.fileno(), 0, size) == size and read(t, size) == f.read()
    s.send(b"more", socket.MSG_MORE)
    s.send(b" than one")
    seen["MSG_MORE"] = read(t, 13)
    t.sendall(b"piped")
    r, w = os.pipe()
    s.setblocking(True)
    seen["splice()"] = (os.splice(s.fileno(), w, 5), os.read(r, 5))
    os.close(r), os.close(w)
    seen["TLS_TX"] = s.getsockopt(SOL_TLS, TLS_TX, 40)[:4]
    t.close()
    seen["its end"] = s.recv(9)
    # What is no record of TLS.
    s, t = pair(kind)
    s.setsockopt(TCP, ULP, b"tls")
    s.setsockopt(SOL_TLS, TLS_RX, keys[0])
    t.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
    seen["a bad record"] = fails(s.recv, 9)
    return seen


def queues(kind):
    s, t = pair(kind)
    ring = uring.Ring()
    ask = lambda cmd: ring.ask(uring.COMMAND, s.fileno(), cmd)
    seen = {"nothing": (number(s, termios.FIONREAD), ask(uring.SIOCINQ), number(s, termios.TIOCOUTQ), ask(uring.SIOCOUTQ))}
    t.sendall(b"12345")
    seen["FIONREAD"] = becomes(lambda: number(s, termios.FIONREAD), 5)
    seen["io_uring: SIOCINQ"] = ask(uring.SIOCINQ)
    s.recv(2)
    seen["io_uring: SIOCINQ after a read"] = ask(uring.SIOCINQ)
    # A timer sends what is corked: where the looks come later than that, once more.
    for _ in range(20):
        s.setsockopt(TCP, socket.TCP_CORK, 1)
        s.send(b"abc")
        held = number(s, termios.TIOCOUTQ), ask(uring.SIOCOUTQ)
        s.setsockopt(TCP, socket.TCP_CORK, 0)
        seen["sent"] = (read(t, 3), becomes(lambda: number(s, termios.TIOCOUTQ), 0), ask(uring.SIOCOUTQ))
        if held == (3, 3):
            break
    seen["corked: TIOCOUTQ, io_uring: SIOCOUTQ"] = held
    return seen


def files(kind):
    """sendfile() and splice(), both ways."""
    s, t = pair(kind)
    seen = {}
    with open(__file__, "rb") as f:
        size = os.fstat(f.fileno()).st_size
        seen["sendfile() to it"] = os.sendfile(s.fileno(), f.fileno(), 0, size) == size and read(t, size) == f.read()
    out = os.memfd_create("out")
    t.sendall(b"x" * 1000)
    seen["sendfile() from it"] = fails(os.sendfile, out, s.fileno(), None, 1000)
    s.setblocking(True)
    r, w = os.pipe()
    n = 0
    while n < 1000:
        n += os.splice(os.dup(s.fileno()), w, 1000 - n)
    seen["splice() from it"] = os.read(r, 2000) == b"x" * 1000
    os.write(w, b"tail")
    seen["splice() to it, with more to come"] = os.splice(r, s.fileno(), 4, flags=4)
    os.close(w)
    seen["and the end of the pipe"] = os.splice(r, s.fileno(), 4, flags=4)
    s.send(b".")
    seen["comes"] = read(t, 5)
    return seen


def zerocopy(kind):
    s, t = pair(kind)
    s.setsockopt(SOL, 60, 1)  # SO_ZEROCOPY
    epoll = select.epoll()
    epoll.register(s, select.EPOLLET)
    epoll.poll(0)
    seen = {"events before": epoll.poll(0)}
    for _ in range(3):
        s.send(b"z" * 20000, 0x4000000)  # MSG_ZEROCOPY
    read(t, 60000)
    s.setblocking(False)
    notes = set()
    while len(notes) < 3:
        events = [e for _, e in epoll.poll(SOON)]
        seen["epoll"] = events
        while True:
            try:
                cmsg = s.recvmsg(1, 100, socket.MSG_ERRQUEUE)[1]
            except BlockingIOError:
                break
            for c in cmsg:
                # struct sock_extended_err: errno, origin, type, code, pad, info, data
                error, origin, _, _, _, low, high = struct.unpack_from("IBBBBII", c[2])
                seen["what it says"] = (error, origin)
                notes |= set(range(low, high + 1))
        if not events:
            break
    seen["each is told of"] = notes
    seen["no event is left"] = polled(s)
    seen["SO_ERROR"] = s.getsockopt(SOL, socket.SO_ERROR)
    return seen


def passed(kind):
    """Another process gets the socket before it connects."""
    seen = {}
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    children = []

    def hand(s):
        socket.send_fds(left, [b"x"], [s.fileno()])
        pid = os.fork()
        if pid == 0:
            try:
                fd = socket.recv_fds(right, 1, 1)[1][0]
                mine = socket.socket(fileno=fd)
                mine.setblocking(True)
                name = lambda: fails(mine.getpeername)
                if not mine.getsockopt(SOL, socket.SO_ACCEPTCONN):
                    becomes(name, "no error")
                    mine.sendall(b"child")
            finally:
                os._exit(0)
        children.append(pid)

    s, t = pair(kind, before=hand)
    if kind == "accepted":
        s.sendall(b"child")
    seen["SCM_RIGHTS before connect()"] = read(t, 5)
    os.waitpid(children[0], 0)
    s.sendall(b"parent")
    seen["and the first one goes on"] = read(t, 6)
    return seen


def urgent(kind):
    s, t = pair(kind)
    signals = []
    old = signal.signal(signal.SIGURG, lambda *_: signals.append(1))
    fcntl.fcntl(s, fcntl.F_SETOWN, os.getpid())
    t.send(b"ab!", socket.MSG_OOB)
    seen = {"poll": becomes(lambda: polled(s), [select.POLLIN | select.POLLOUT | select.POLLPRI])}
    seen["SIGURG"] = becomes(lambda: bool(signals), True)
    signal.signal(signal.SIGURG, old)
    seen["SIOCATMARK"] = number(s, 0x8905)
    seen["recv()"] = s.recv(9)
    seen["at the mark"] = number(s, 0x8905)
    # With a time limit Python would wait for other bytes first.
    s.setblocking(True)
    t.setblocking(True)
    seen["MSG_OOB"] = s.recv(1, socket.MSG_OOB)
    t.sendall(b"x")
    seen["goes on"] = s.recv(9)
    s.send(b"u", socket.MSG_OOB)
    seen["sent"] = becomes(lambda: polled(t), [select.POLLOUT | select.POLLPRI]) and t.recv(1, socket.MSG_OOB)
    s.setsockopt(SOL, socket.SO_OOBINLINE, 1)
    t.send(b"!", socket.MSG_OOB)
    seen["SO_OOBINLINE"] = read(s, 1)
    return seen


def ends(kind):
    """shutdown() and lingering."""
    seen = {}
    for name, how in (("read", socket.SHUT_RD), ("write", socket.SHUT_WR), ("both", socket.SHUT_RDWR)):
        s, t = pair(kind)
        s.shutdown(how)
        seen[f"shutdown, {name}: poll"] = polled(s)
        if how != socket.SHUT_RD:
            seen[f"shutdown, {name}: the peer"] = t.recv(1)
            seen[f"shutdown, {name}: send()"] = fails(s.send, b"x")
        else:
            t.sendall(b"late")
            becomes(lambda: number(s, termios.FIONREAD), 4)
            seen[f"shutdown, {name}: recv()"] = (s.recv(9), s.recv(9))
        if how == socket.SHUT_WR:
            t.sendall(b"y")
            seen[f"shutdown, {name}: recv()"] = s.recv(1)
        seen[f"shutdown, {name}: again"] = fails(s.shutdown, how)
    s, t = pair(kind)
    s.setsockopt(SOL, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()
    seen["SO_LINGER 0: the peer"] = fails(t.recv, 1)
    # close() waits for bytes that the peer does not take.
    s, t = pair(kind)
    s.setsockopt(SOL, socket.SO_LINGER, struct.pack("ii", 1, 1))
    s.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            s.send(bytes(65536))
    s.setblocking(True)
    began = time.monotonic()
    s.close()
    # The kernel counts ticks, and a slow machine catches up several at once.
    seen["SO_LINGER 1: close() waits"] = time.monotonic() - began > 0.5
    t.close()
    s, t = pair(kind)
    s.send(b"all")
    s.close()
    seen["without it"] = (read(t, 9), fails(t.send, b"x"))
    return seen


def mapped(kind):
    """IPv6 sockets with IPv4 addresses, and IPV6_ADDRFORM."""
    if kind == "accepted":
        there = listener(new(ZRS, AUTO, V6), (f"::ffff:{A}", 0))
        t = new(TCP, None, V4, "B")
        t.connect((A, there.getsockname()[1]))
        s = there.accept()[0]
    else:
        proto, mode, _ = KINDS[kind]
        there = listener(new(TCP, None, V4, "B"), (B, 0))
        s = new(proto, mode, V6)
        s.connect((f"::ffff:{B}", there.getsockname()[1]))
        t = there.accept()[0]
    own, other = (A, B)
    seen = {"names": (s.getsockname()[0] == f"::ffff:{own}", s.getpeername()[0] == f"::ffff:{other}")}
    seen["IPV6_ADDRFORM: wrong"] = fails(s.setsockopt, socket.IPPROTO_IPV6, 1, V6)
    seen["IPV6_ADDRFORM"] = fails(s.setsockopt, socket.IPPROTO_IPV6, 1, V4)
    libc = ctypes.CDLL(None)
    name, size = ctypes.create_string_buffer(128), ctypes.c_int(128)
    libc.getsockname(s.fileno(), name, ctypes.byref(size))
    seen["the family of its name"] = (struct.unpack_from("H", name)[0], size.value)
    s.sendall(b"four")
    t.settimeout(SOON)
    t.sendall(b"back")
    seen["goes on"] = (read(t, 4), read(s, 4))
    seen["an option of IPv4"] = fails(s.setsockopt, socket.IPPROTO_IP, socket.IP_TOS, 16)
    t.close()
    seen["its end"] = s.recv(1)
    s.close()
    return seen


def settings(kind):
    """Options of SOL_SOCKET that change what calls do, set on the open connection."""
    s, t = pair(kind)
    s.setsockopt(SOL, socket.SO_RCVLOWAT, 10)
    t.sendall(b"12345")
    becomes(lambda: number(s, termios.FIONREAD), 5)
    seen = {"SO_RCVLOWAT: below": polled(s)}
    t.sendall(b"67890")
    seen["SO_RCVLOWAT: reached"] = becomes(lambda: polled(s), [select.POLLIN | select.POLLOUT])
    # With a time limit Python would wait for ten bytes first.
    s.setblocking(True)
    seen["MSG_PEEK"] = s.recv(3, socket.MSG_PEEK)
    seen["MSG_TRUNC"] = s.recv_into(bytearray(4), 4, socket.MSG_TRUNC)
    seen["MSG_WAITALL"] = s.recv(6, socket.MSG_WAITALL)
    s.setsockopt(SOL, socket.SO_RCVLOWAT, 1)
    s.setsockopt(SOL, socket.SO_RCVTIMEO, struct.pack("qq", 0, 50000))
    seen["SO_RCVTIMEO"] = fails(s.recv, 1)
    s.settimeout(SOON)
    s.setsockopt(SOL, 35, 1)  # SO_TIMESTAMPNS

    def stamped():
        t.sendall(b"t")
        select.select([s], [], [], SOON)
        return [c[:2] for c in s.recvmsg(1, 100)[1]]

    # The kernel begins to stamp packets a moment later.
    seen["SO_TIMESTAMPNS"] = becomes(stamped, [(SOL, 35)])
    seen["TCP_INFO: the state"] = s.getsockopt(TCP, socket.TCP_INFO, 1)
    seen["SO_RCVBUF"] = fails(s.setsockopt, SOL, socket.SO_RCVBUF, 50000), s.getsockopt(SOL, socket.SO_RCVBUF)
    seen["TCP_MAXSEG"] = s.getsockopt(TCP, socket.TCP_MAXSEG)
    with contextlib.suppress(OSError):
        mmap.mmap(s.fileno(), 4096, mmap.MAP_SHARED, mmap.PROT_READ).close()
        seen["mmap()"] = True
    return seen | {"mmap()": seen.get("mmap()", False)}


def fast_open(kind):
    """One call connects and sends."""
    proto, mode, _ = KINDS[kind]
    there = listener(new(TCP, where="B"), (B, 0))
    s = new(proto, mode)
    # With a time limit Python would make the call without blocking.
    s.setblocking(True)
    seen = {"sendto()": s.sendto(b"first", FASTOPEN, there.getsockname())}
    t, peer = there.accept()
    t.settimeout(SOON)
    seen["what comes"] = read(t, 5)
    seen["names"] = (peer == s.getsockname(), s.getpeername() == there.getsockname())
    seen["once more"] = fails(s.sendto, b"x", FASTOPEN, there.getsockname())
    s.sendall(b"then")
    t.sendall(b"back")
    seen["goes on"] = (read(t, 4), read(s, 4))
    s = new(proto, mode)
    s.setblocking(False)
    epoll = select.epoll()
    epoll.register(s, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
    epoll.poll(0)
    seen["without blocking"] = fails(s.sendto, b"x", FASTOPEN, there.getsockname())
    seen["without blocking: epoll"] = [e for _, e in epoll.poll(SOON)]
    seen["without blocking: SO_ERROR"] = (s.getsockopt(SOL, socket.SO_ERROR), s.send(b"y"))
    at = there.getsockname()
    there.close()
    s = new(proto, mode)
    s.setblocking(True)
    seen["refused"] = (fails(s.sendto, b"x", FASTOPEN, at), s.getsockopt(SOL, socket.SO_ERROR))
    seen["refused again"] = fails(s.sendto, b"x", FASTOPEN, at)
    s = new(proto, mode)
    seen["without an address"] = fails(s.send, b"x", FASTOPEN)
    if proto == ZRS:
        by = struct.unpack_from("II", s.getsockopt(SOL_ZRS, ZRS_INFO, 256), 112)
        check(f"fast_open, {kind}: the carrier", by, (BY_TCP, ASKED))
        check("fast_open, ZRS alone", fails(new(ZRS, NEVER).sendto, b"x", FASTOPEN, at), "ENOTSUP")
    return seen


def peek(kind):
    """SO_PEEK_OFF."""
    s, t = pair(kind)
    off = lambda: s.getsockopt(SOL, PEEK_OFF)
    seen = {"at first": off(), "set": (fails(s.setsockopt, SOL, PEEK_OFF, 0), off())}
    t.sendall(b"0123456789")
    becomes(lambda: number(s, termios.FIONREAD), 10)
    seen["MSG_PEEK"] = [(s.recv(3, socket.MSG_PEEK), off()) for _ in range(3)]
    seen["a read"] = (s.recv(4), off())
    seen["MSG_PEEK after it"] = (s.recv(9, socket.MSG_PEEK), off())
    seen["set again"] = (fails(s.setsockopt, SOL, PEEK_OFF, 2), s.recv(2, socket.MSG_PEEK), off())
    seen["off"] = (fails(s.setsockopt, SOL, PEEK_OFF, -1), s.recv(2, socket.MSG_PEEK), off(), s.recv(9))
    if kind == "carried":
        alone = new(ZRS, NEVER)
        check("peek, ZRS alone", (alone.getsockopt(SOL, PEEK_OFF), fails(alone.setsockopt, SOL, PEEK_OFF, 0)), (-1, "ENOTSUP"))
    return seen


def again(kind):
    """connect(AF_UNSPEC), and a second connection."""
    s, t = pair(kind)
    libc = ctypes.CDLL(None, use_errno=True)
    done = libc.connect(s.fileno(), ctypes.create_string_buffer(16), 16)
    seen = {"AF_UNSPEC": (done, fails(s.getpeername)), "the peer": fails(t.recv, 1)}
    there = listener(new(TCP, where="B"), (B, 0))
    seen["connect()"] = fails(s.connect, there.getsockname())
    t = there.accept()[0]
    t.sendall(b"second")
    seen["the second connection"] = read(s, 6)
    return seen


def owner(kind):
    """The rules of packet filters about the user of a socket."""
    try:
        with nft.dropped(USER):
            pass
    except OSError as e:
        raise Unfit(f"this kernel has no nftables: {e}") from e
    seen = {}
    for user in (USER, USER + 1):
        pid = os.fork()
        if pid == 0:
            # The socket of this process is the user's.
            os.setuid(user)
            proto, mode, _ = KINDS[kind]
            s = socket.socket(V4, socket.SOCK_STREAM, proto)
            if mode is not None:
                s.setsockopt(SOL_ZRS, ZRS_TCP, mode)
            socket.send_fds(OUT, [b"x"], [s.fileno()])
            signal.pause()
        s = socket.socket(fileno=socket.recv_fds(IN, 1, 1)[1][0])
        there = listener(new(TCP, where="B"), (B, 0))
        with nft.dropped(USER):
            s.setblocking(False)
            s.connect_ex(there.getsockname())
            seen[f"user {user}"] = bool(select.select([there], [], [], SOON if user != USER else 1)[0])
        os.kill(pid, signal.SIGKILL), os.waitpid(pid, 0)
        s.close()
    return seen


IN, OUT = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)


def outcomes():
    """What was registered before connect() is told of a connection by TCP and of one by ZRS."""

    def case(proto, mode, other):
        there = listener(new(other, where="B"), (B, 0))
        s = new(proto, mode)
        s.setblocking(False)
        kinds = {"level": 0, "edge": select.EPOLLET, "exclusive": select.EPOLLEXCLUSIVE, "once": select.EPOLLONESHOT}
        epolls = {name: select.epoll() for name in kinds}
        for name, epoll in epolls.items():
            epoll.register(s, select.EPOLLIN | select.EPOLLOUT | kinds[name])
            epoll.poll(0)
        signals = []
        old = signal.signal(signal.SIGIO, lambda *_: signals.append(1))
        fcntl.fcntl(s, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(s, fcntl.F_SETFL, fcntl.fcntl(s, fcntl.F_GETFL) | os.O_ASYNC)
        found = []
        thread = threading.Thread(target=lambda: found.append(select.select([], [s], [], SOON)[1] == [s]))
        said = s.connect_ex(there.getsockname())
        # ZRS may be connected by the time that it looks.
        seen = {"connect()": errno.EINPROGRESS if other == ZRS and said == 0 else said}
        thread.start()
        events = lambda epoll: [e for _, e in epoll.poll(SOON)]
        for name, epoll in epolls.items():
            seen[f"epoll, {name}"] = events(epoll)
        thread.join()
        if proto == ZRS:
            by, why = struct.unpack_from("II", s.getsockopt(SOL_ZRS, ZRS_INFO, 256), 112)
            check("outcomes: the carrier", by, BY_ZRS if other == ZRS else BY_TCP)
            if (by == BY_ZRS) != (other == ZRS):
                print(f"# the reason is {why}", flush=True)
                return None
        seen["select() that waits"] = found
        seen["SIGIO"] = becomes(lambda: bool(signals), True)
        seen["SO_ERROR"] = s.getsockopt(SOL, socket.SO_ERROR)
        t = there.accept()[0]
        # TCP's answer wakes, and then the end of the decision, with the same event for who looked in between.
        again = [(fd, e) for fd, e in epolls["edge"].poll(0) if proto == TCP or e != select.EPOLLOUT]
        seen["told once"] = (again, epolls["once"].poll(0))
        t.sendall(b"x")
        # That event may come only now.
        seen["data: edge"] = becomes(lambda: events(epolls["edge"]), [select.EPOLLIN | select.EPOLLOUT])
        seen["data: exclusive"] = becomes(lambda: events(epolls["exclusive"]), [select.EPOLLIN | select.EPOLLOUT])
        fcntl.fcntl(s, fcntl.F_SETFL, fcntl.fcntl(s, fcntl.F_GETFL) & ~os.O_ASYNC)
        signal.signal(signal.SIGIO, old)
        return seen

    want = case(TCP, None, TCP)
    for name, other in (("TCP", TCP), ("ZRS", ZRS)):
        seen = case(ZRS, AUTO, other) or {}
        for key, value in want.items():
            check(f"outcomes, {name}: {key}", seen.get(key), value)


def accepts():
    """accept() without an address, and by one request of io_uring for all."""
    there = listener(new(ZRS, AUTO), (A, 0))
    at = there.getsockname()
    libc = ctypes.CDLL(None, use_errno=True)
    for proto in (TCP, ZRS):
        peer = new(proto, where="B")
        peer.connect(at)
        select.select([there], [], [], SOON)
        with socket.socket(fileno=libc.accept4(there.fileno(), None, None, 0)) as s:
            seen = (s.getsockopt(SOL, socket.SO_PROTOCOL), s.getpeername() == peer.getsockname(), s.getsockname() == at)
            check(f"accept() without an address, protocol {proto}", seen, (proto, True, True))
        name, size = ctypes.create_string_buffer(128), ctypes.c_int(128)
        peer = new(proto, where="B")
        peer.connect(at)
        select.select([there], [], [], SOON)
        with socket.socket(fileno=libc.accept4(there.fileno(), name, ctypes.byref(size), 0)):
            want = (V4, socket.htons(peer.getsockname()[1]), socket.inet_aton(B))
            check(f"accept() with one, protocol {proto}", (size.value, struct.unpack_from("HH4s", name)), (16, want))
    order = (TCP, ZRS, ZRS, TCP, TCP)
    peers = [new(proto, where="B") for proto in order]
    peers[0].connect(at), peers[1].connect(at)
    ring = uring.Ring()
    ring.submit(uring.ACCEPT, there.fileno(), ioprio=uring.ACCEPT_MULTISHOT)
    protocols = []
    for i in range(len(order)):
        if i >= 2:
            peers[i].connect(at)
        fd, flags = ring.next()
        check(f"io_uring: number {i + 1} is accepted, with more to come", (fd >= 0, flags & uring.MORE), (True, uring.MORE))
        with socket.socket(fileno=fd) as s:
            protocols.append(s.getsockopt(SOL, socket.SO_PROTOCOL))
    check("io_uring: of both kinds", (sorted(protocols[:2]), protocols[2:]), ([TCP, ZRS], list(order[2:])))


CARRIED = ("carried", "carried at once")
# A link of ZRS to host B, for all that follows.
keep = listener(new(ZRS, where="B"), (B, 0))
new(ZRS).connect(keep.getsockname())
outcomes()
for case in (tls, queues, files, zerocopy, passed, urgent, ends, mapped, settings, peek):
    compare(case)
compare(fast_open, CARRIED)
compare(again, CARRIED)
compare(owner, CARRIED)
accepts()
