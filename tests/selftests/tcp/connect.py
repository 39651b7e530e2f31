#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""connect() in mode AUTO, from host A: by ZRS, or by TCP where there is no ZRS.

  connect.py            prints a line for each thing it looked at
  connect.py rejected   the same where host B has no socket of ZRS that listens
  connect.py elsewhere  the same from an address without RDMA, and from another one, before there is a link
  connect.py hold       connects with ZRS, says "connected" and stays
  connect.py leave IP   ends while it connects to IP
  connect.py why IP PORT  connects, and prints the carrier and the reason, of a failed connect() as well
  connect.py whys IP PORT the same for many that fail, each kind once
  connect.py alone IP PORT connects in modes NEVER and REQUIRED, and prints the errors
  connect.py how IP PORT connects by protocol 254, and prints connect()'s error, the carrier and the reason
  connect.py pending IP connects to IP, says "pending" while nothing is decided, and stays

Where TCP has an answer, too, it is compared with that.
"""

import errno
import fcntl
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
from hosts import PATIENCE, becomes, check, fails, host

TCP, ZRS, ZRS_AUTO = 6, 253, 254
SOL_ZRS, ZRS_INFO, ZRS_TCP = 0x5A52, 2, 3
NEVER, AUTO, REQUIRED, ONLY = range(4)
ASKED, LOCAL, DRAIN, KNOWN, NO_ZRS, SLOW, NO_LISTENER = range(1, 8)
BY_ZRS, BY_TCP = 1, 2
A, B, C = os.environ["ADDR_A"], os.environ["ADDR_B"], os.environ.get("ADDR_C")
B6 = os.environ["ADDR6_B"]
SOL = socket.SOL_SOCKET
SOON = 20 * PATIENCE
PARAMETERS = "/sys/module/zrs/parameters/"


def listener(proto, at, where="B"):
    family = socket.AF_INET6 if ":" in at[0] else socket.AF_INET
    with host(where):
        s = socket.socket(family, socket.SOCK_STREAM, proto)
    s.settimeout(SOON)
    s.bind(at)
    s.listen(64)
    return s


def new(mode=AUTO, family=socket.AF_INET):
    s = socket.socket(family, socket.SOCK_STREAM, ZRS)
    s.setsockopt(SOL_ZRS, ZRS_TCP, mode)
    s.settimeout(SOON)
    return s


def plain():
    s = socket.socket()
    s.settimeout(SOON)
    return s


def carrier(s):
    """What carries the socket, and why."""
    return struct.unpack_from("II", s.getsockopt(SOL_ZRS, ZRS_INFO, 256), 112)


def rejected():
    """Host B has RDMA, and does not take links: it answers at once that it has no ZRS."""
    web = listener(TCP, (B, 0))
    for name, why in (("first", NO_ZRS), ("again", KNOWN)):
        s = new()
        s.connect(web.getsockname())
        check(f"a host with RDMA, without ZRS, {name}", (web.accept()[1], carrier(s)), (s.getsockname(), (BY_TCP, why)))
    s = new(NEVER)
    check("a host with RDMA, without ZRS: ZRS alone", fails(s.connect, web.getsockname()), "ECONNREFUSED")


def carriers():
    keep = listener(ZRS, (B, 0))  # host B has ZRS
    s = new()
    s.connect(keep.getsockname())
    check("a server of ZRS", carrier(s), (BY_ZRS, 0))
    web = listener(TCP, (B, 0))
    for name, why in (("first", NO_LISTENER), ("again", KNOWN)):
        # A port is remembered for a second: who comes later asks again.
        for _ in range(10):
            s = new()
            s.connect(web.getsockname())
            t, peer = web.accept()
            if carrier(s)[1] == why:
                break
        check(f"a server of TCP, {name}", (carrier(s), peer), ((BY_TCP, why), s.getsockname()))
        check(f"its name, {name}", s.getpeername(), web.getsockname())
    s = new()
    s.connect(keep.getsockname())
    check("another port is not concerned", carrier(s), (BY_ZRS, 0))
    for mode in (NEVER, REQUIRED):
        check(f"mode {mode} has ZRS alone", fails(new(mode).connect, web.getsockname()), "ECONNREFUSED")
    web.settimeout(0)
    check("and no TCP connection came", fails(web.accept), "EAGAIN")
    s = new(ONLY)
    check("mode ONLY", (fails(s.connect, keep.getsockname()), carrier(s)), ("ECONNREFUSED", (BY_TCP, ASKED)))
    both = new()
    both.setsockopt(TCP, 30, 1)  # TCP_FASTOPEN_CONNECT
    check("an option that only TCP has", carrier(both), (BY_TCP, ASKED))
    s = new()
    s.setsockopt(TCP, socket.TCP_CONGESTION, b"reno")
    check("an option of TCP without a counterpart", s.getsockopt(TCP, socket.TCP_CONGESTION, 16)[:5], b"reno\0")
    s.connect(keep.getsockname())
    check("is kept, and ZRS carries it", carrier(s), (BY_ZRS, 0))
    ip_options(keep)
    s = new()
    s.bind((A, 0))
    at = s.getsockname()
    web = listener(TCP, (B, 0))
    s.connect(web.getsockname())
    check("a bound socket keeps its name", (web.accept()[1], carrier(s)), (at, (BY_TCP, NO_LISTENER)))
    web = listener(TCP, (B, 0))
    s = new()
    s.setsockopt(socket.IPPROTO_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT
    s.bind((A, 0))
    s.connect(web.getsockname())
    check("and one bound to an address alone", (web.accept()[1], carrier(s)), (s.getsockname(), (BY_TCP, NO_LISTENER)))
    web = listener(TCP, (B, 0))
    for mode in (AUTO, NEVER, REQUIRED):
        s = new(mode)
        s.setsockopt(SOL, socket.SO_BINDTODEVICE, b"vx")
        error = fails(s.connect, web.getsockname())
        if mode == AUTO:
            seen = (error, web.accept()[1], carrier(s))
            check("one bound to a device without RDMA", seen, ("no error", s.getsockname(), (BY_TCP, ASKED)))
        else:
            seen = (error, carrier(s))
            check(f"one bound to a device without RDMA, mode {mode}: ZRS alone", seen, ("ENETUNREACH", (0, 0)))
    web.settimeout(0)
    check("and no TCP connection came of that", fails(web.accept), "EAGAIN")
    web.settimeout(SOON)
    s = new()
    s.connect(web.getsockname())
    check("nothing is remembered of that", (web.accept()[1], carrier(s)), (s.getsockname(), (BY_TCP, NO_LISTENER)))
    web = listener(TCP, (B6, 0))
    s = new(family=socket.AF_INET6)
    s.connect(web.getsockname())
    check("IPv6", (web.accept()[1][:2], carrier(s)[0]), (s.getsockname()[:2], BY_TCP))


def elsewhere():
    """A socket whose own address is that of a wire without RDMA."""
    keep, web = listener(ZRS, (B, 0)), listener(TCP, (B, 0))
    for why in (NO_ZRS, KNOWN):
        s = new()
        s.bind(("10.82.0.1", 0))
        s.connect(web.getsockname())
        check("a socket with an address without RDMA", (web.accept()[1], carrier(s)), (s.getsockname(), (BY_TCP, why)))
    s = new()
    s.connect(keep.getsockname())
    check("others use ZRS to the same host", carrier(s), (BY_ZRS, 0))


def ip_options(keep):
    """Options of IP that ZRS does not have: name, level, number, family, carrier after them."""
    ip, v6 = (socket.IPPROTO_IP, socket.AF_INET), (socket.IPPROTO_IPV6, socket.AF_INET6)
    for name, (level, family), number, tcp_only in (
        ("IP_RECVTTL", ip, 12, False),
        ("IP_RECVERR", ip, 11, False),
        ("IP_MINTTL", ip, 21, True),
        ("IP_FREEBIND", ip, 15, True),
        ("IPV6_RECVERR", v6, 25, False),
        ("IPV6_MINHOPCOUNT", v6, 73, True),
        ("IPV6_FREEBIND", v6, 78, True),
    ):
        s = new(family=family)
        s.setsockopt(level, number, 1)
        seen = (carrier(s), s.getsockopt(level, number))
        check(f"{name} is kept", seen, ((BY_TCP, ASKED) if tcp_only else (0, 0), 1))
        if family == socket.AF_INET and not tcp_only:
            s.connect(keep.getsockname())
            check(f"{name}: ZRS carries it", carrier(s), (BY_ZRS, 0))
        alone = fails(new(NEVER, family).setsockopt, level, number, 1)
        check(f"{name} without TCP", alone, "ENOPROTOOPT")
    s, t = new(), plain()
    for level, number in ((socket.IPPROTO_IP, 9999), (socket.IPPROTO_IPV6, 25), (socket.IPPROTO_IPV6, 73)):
        unknown = [fails(x.setsockopt, level, number, 1) for x in (s, t)]
        check(f"level {level}, option {number}: as TCP", unknown[0], unknown[1])


def silent():
    """A host that does not answer: it costs one wait, once."""
    there = listener(TCP, (C, 0), "C")
    with open(PARAMETERS + "fallback_ms", "w") as f:
        f.write("4000")
    s = new()
    s.setblocking(False)
    epoll, poll = select.epoll(), select.poll()
    epoll.register(s, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
    poll.register(s, select.POLLIN | select.POLLOUT)
    epoll.poll(0)
    check("silent: connect()", s.connect_ex(there.getsockname()), errno.EINPROGRESS)
    early = (epoll.poll(0), poll.poll(0), select.select([s], [s], [], 0)[:2])
    check("silent: neither readable nor writable until decided", early, ([], [], ([], [])))
    check("silent: connect() again", s.connect_ex(there.getsockname()), errno.EALREADY)
    check("silent: epoll, edge-triggered", [e for _, e in epoll.poll(SOON)], [select.EPOLLOUT])
    check("silent: poll", [e for _, e in poll.poll(20000)], [select.POLLOUT])
    check("silent: SO_ERROR", s.getsockopt(SOL, socket.SO_ERROR), 0)
    check("silent: the carrier", carrier(s), (BY_TCP, SLOW))
    with open(PARAMETERS + "fallback_ms", "w") as f:
        f.write("10000")
    s = new()
    s.connect(there.getsockname())
    check("silent: later it is known", carrier(s), (BY_TCP, KNOWN))
    for mode in (NEVER, REQUIRED):
        s = new(mode)
        s.setsockopt(TCP, 18, 1000)  # TCP_USER_TIMEOUT
        check(f"silent: mode {mode}: ZRS alone", (fails(s.connect, there.getsockname()), carrier(s)), ("ETIMEDOUT", (0, 0)))
    s = new()
    check("silent: a closed port", fails(s.connect, (C, 1)), "ECONNREFUSED")
    there.settimeout(2)
    there.accept(), there.accept()
    there.settimeout(0)
    check("silent: one connection for each connect()", fails(there.accept), "EAGAIN")


def own():
    with host("B"):
        both = new()
        both.bind(("0.0.0.0", 0))
        both.listen()
        port = both.getsockname()[1]
        for at in ("127.0.0.1", "0.0.0.0", B):
            s = new()
            s.connect((at, port))
            check(f"own host, {at}", (carrier(s), both.accept()[0].getsockopt(SOL, socket.SO_PROTOCOL)), ((BY_TCP, LOCAL), TCP))
        both = new(family=socket.AF_INET6)
        both.bind(("::", 0))
        both.listen()
        port = both.getsockname()[1]
        for at in ("::1", "::", B6, "::ffff:127.0.0.1"):
            s = new(family=socket.AF_INET6)
            s.connect((at, port))
            check(f"own host, {at}", (carrier(s), both.accept()[0].getsockopt(SOL, socket.SO_PROTOCOL)), ((BY_TCP, LOCAL), TCP))


def compare(case):
    """With a TCP socket, and with one of ours that TCP carries: each time the decision comes late."""
    want = case(plain, listener(TCP, (B, 0)))
    seen = case(new, listener(TCP, (B, 0)))
    for key, value in seen.items():
        check(f"{case.__name__}: {key}", value, want[key])


def read(s, n):
    got = b""
    while len(got) < n:
        part = s.recv(n - len(got))
        if not part:
            break
        got += part
    return got


def data(make, there):
    s = make()
    s.connect(there.getsockname())
    t, _ = there.accept()
    t.settimeout(SOON)
    load = os.urandom(300000)
    threads = [threading.Thread(target=x.sendall, args=(load,)) for x in (s, t)]
    [x.start() for x in threads]
    seen = {"both ways at once": (read(t, len(load)) == load, read(s, len(load)) == load)}
    [x.join() for x in threads]
    t.sendall(b"hello")
    seen["MSG_PEEK"] = s.recv(9, socket.MSG_PEEK)
    seen["FIONREAD"] = fcntl.ioctl(s, termios.FIONREAD, b"\0" * 4)
    seen["read"] = s.recv(9)
    with open(__file__, "rb") as f:
        size = os.fstat(f.fileno()).st_size
        seen["sendfile() to it"] = os.sendfile(s.fileno(), f.fileno(), 0, size) == size and read(t, size) == f.read()
    t.sendall(b"piped")
    r, w = os.pipe()
    s.setblocking(True)
    seen["splice() from it"] = (os.splice(s.fileno(), w, 5), os.read(r, 9))
    os.close(r), os.close(w)
    s.settimeout(SOON)
    s.setsockopt(SOL, 60, 1)  # SO_ZEROCOPY
    s.send(b"z" * 20000, 0x4000000)  # MSG_ZEROCOPY
    read(t, 20000)
    poll = select.poll()
    poll.register(s, select.POLLIN)
    seen["MSG_ZEROCOPY: poll"] = [e for _, e in poll.poll(20000)]
    cmsg = s.recvmsg(1, 100, socket.MSG_ERRQUEUE)[1]
    seen["MSG_ZEROCOPY: notified"] = [struct.unpack_from("IBBBBIII", c[2])[:3] for c in cmsg]
    seen["TCP_INFO"] = s.getsockopt(TCP, socket.TCP_INFO, 1)
    seen["TCP_ULP"] = fails(s.setsockopt, TCP, 31, b"tls")
    s.shutdown(socket.SHUT_WR)
    seen["the end"] = (t.recv(1), fails(s.send, b"x"))
    t.sendall(b"after")
    t.close()
    seen["after shutdown()"] = (s.recv(9), s.recv(9))
    return seen


def waits(make, there):
    s = make()
    s.setblocking(False)
    level, edge, poll = select.epoll(), select.epoll(), select.poll()
    signals = []
    old = signal.signal(signal.SIGIO, lambda *_: signals.append(1))
    fcntl.fcntl(s, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(s, fcntl.F_SETFL, fcntl.fcntl(s, fcntl.F_GETFL) | os.O_ASYNC)
    level.register(s, select.EPOLLIN | select.EPOLLOUT)
    edge.register(s, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
    poll.register(s, select.POLLIN | select.POLLOUT)
    level.poll(0), edge.poll(0)
    seen = {"connect()": s.connect_ex(there.getsockname())}
    events = lambda found: [e for _, e in found]
    seen["edge-triggered"] = events(edge.poll(SOON))
    seen["level"] = events(level.poll(SOON))
    seen["poll"] = events(poll.poll(20000))
    seen["select"] = bool(select.select([], [s], [], SOON)[1])
    seen["SO_ERROR"] = s.getsockopt(SOL, socket.SO_ERROR)
    seen["connect() again"] = (s.connect_ex(there.getsockname()), s.connect_ex(there.getsockname()))
    late = time.monotonic() + SOON
    while not signals and time.monotonic() < late:
        time.sleep(0.01)
    seen["SIGIO"] = bool(signals)
    t, _ = there.accept()
    edge.poll(0)
    t.sendall(b"x")
    seen["data, edge-triggered"] = becomes(lambda: events(edge.poll(SOON)), [select.EPOLLIN | select.EPOLLOUT])
    t.setsockopt(SOL, socket.SO_LINGER, struct.pack("ii", 1, 0))
    t.close()
    poll.poll(0)
    becomes(lambda: any(e & select.POLLHUP for e in events(poll.poll(0))), True)
    seen["a reset: poll"] = events(poll.poll(20000))
    seen["a reset: recv()"] = (s.recv(9), fails(s.recv, 9), s.recv(9))
    seen["a reset: send()"] = fails(s.send, b"x")
    signal.signal(signal.SIGIO, old)
    return seen


def refused(make, there):
    at = there.getsockname()
    there.close()
    s = make()
    seen = {"connect()": (fails(s.connect, at), fails(s.getpeername))}
    s = make()
    s.setblocking(False)
    epoll = select.epoll()
    epoll.register(s, select.EPOLLOUT | select.EPOLLET)
    epoll.poll(0)
    s.connect_ex(at)
    events = [e for _, e in epoll.poll(SOON)]
    seen["epoll"] = [e & select.EPOLLERR != 0 for e in events]
    seen["SO_ERROR"] = errno.errorcode[s.getsockopt(SOL, socket.SO_ERROR)]
    seen["SO_ERROR again"] = s.getsockopt(SOL, socket.SO_ERROR)
    s = make()
    s.setblocking(False)
    s.connect_ex(at)
    late, err = time.monotonic() + SOON, 0
    while not err and time.monotonic() < late:
        err = s.getsockopt(SOL, socket.SO_ERROR)
    seen["SO_ERROR without poll()"] = errno.errorcode.get(err)
    return seen


def shared(make, there):
    s = make()
    copy = s.dup()
    copy.settimeout(SOON)
    pid = os.fork()
    if pid == 0:
        copy.close()
        late = time.monotonic() + SOON
        while fails(s.getpeername) != "no error" and time.monotonic() < late:
            time.sleep(0.01)
        s.sendall(b"child")
        os._exit(0)
    s.connect(there.getsockname())
    t, _ = there.accept()
    t.settimeout(SOON)
    seen = {"a child that had it before": read(t, 5)}
    os.waitpid(pid, 0)
    s.close()
    copy.sendall(b"copy")
    seen["a copy"] = read(t, 4)
    copy.close()
    seen["the end of both"] = t.recv(1)
    return seen


def options(make, there):
    s = make()
    linger, tos = struct.pack("ii", 1, 7), (socket.IPPROTO_IP, socket.IP_TOS)
    s.setsockopt(SOL, socket.SO_KEEPALIVE, 1)
    s.setsockopt(SOL, socket.SO_LINGER, linger)
    s.setsockopt(SOL, socket.SO_RCVBUF, 100000)
    s.setsockopt(TCP, socket.TCP_KEEPIDLE, 77)
    s.setsockopt(*tos, 16)
    s.connect(there.getsockname())
    s.setsockopt(TCP, socket.TCP_KEEPCNT, 5)
    return {
        "SO_KEEPALIVE": s.getsockopt(SOL, socket.SO_KEEPALIVE),
        "SO_LINGER": s.getsockopt(SOL, socket.SO_LINGER, 8),
        "SO_RCVBUF": s.getsockopt(SOL, socket.SO_RCVBUF),
        "TCP_KEEPIDLE": s.getsockopt(TCP, socket.TCP_KEEPIDLE),
        "TCP_KEEPCNT, set late": s.getsockopt(TCP, socket.TCP_KEEPCNT),
        "IP_TOS": s.getsockopt(*tos),
        "an unknown one": fails(s.getsockopt, TCP, 999),
    }


def leave(ip):
    s = new()
    s.setblocking(False)
    assert s.connect_ex((ip, 80)) == errno.EINPROGRESS
    late = time.monotonic() + SOON
    while carrier(s)[0] != BY_TCP and time.monotonic() < late:
        time.sleep(0.01)
    assert carrier(s)[0] == BY_TCP


def pending(ip):
    s = new()
    s.setblocking(False)
    assert s.connect_ex((ip, 80)) == errno.EINPROGRESS
    time.sleep(0.5)
    assert carrier(s)[0] != BY_TCP and not select.select([], [s], [], 0)[1]
    print("pending", flush=True)
    signal.pause()


def why(ip, port, go=None):
    """Connects, after `go` is there, and says which carrier it is and why."""
    s = new()
    if go:
        print("made", flush=True)
    while go and not os.path.exists(go):
        time.sleep(0.05)
    fails(s.connect, (ip, port))
    print(*carrier(s), flush=True)


def alone(ip, port):
    """Says the errors of connect() with ZRS alone, in modes NEVER and REQUIRED."""
    print(*(fails(new(mode).connect, (ip, port)) for mode in (NEVER, REQUIRED)), flush=True)


def how(ip, port):
    """Connects a socket of a program that asked for TCP."""
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, ZRS_AUTO)
    s.settimeout(SOON)
    error = fails(s.connect, (ip, port))
    print(error, *carrier(s), flush=True)


def whys(ip, port):
    """Says for many sockets, at the moment when connect() has failed, which carriers they have and why."""
    seen = set()
    for _ in range(100):
        s = new()
        fails(s.connect, (ip, port))
        seen.add(carrier(s))
    print(*(number for one in sorted(seen) for number in one), flush=True)


def hold():
    there = listener(ZRS, (B, 0))
    s = new()
    s.connect(there.getsockname())
    print("connected", carrier(s), flush=True)
    signal.pause()


if __name__ == "__main__":
    if sys.argv[1:2] == ["leave"]:
        leave(sys.argv[2])
    elif sys.argv[1:2] == ["pending"]:
        pending(sys.argv[2])
    elif sys.argv[1:2] == ["why"]:
        why(sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
    elif sys.argv[1:2] == ["alone"]:
        alone(sys.argv[2], int(sys.argv[3]))
    elif sys.argv[1:2] == ["how"]:
        how(sys.argv[2], int(sys.argv[3]))
    elif sys.argv[1:2] == ["whys"]:
        whys(sys.argv[2], int(sys.argv[3]))
    elif sys.argv[1:2] == ["rejected"]:
        rejected()
    elif sys.argv[1:2] == ["elsewhere"]:
        elsewhere()
    elif sys.argv[1:2] == ["hold"]:
        hold()
    else:
        carriers()
        silent()
        own()
        keep = listener(ZRS, (B, 0))
        for case in (data, waits, refused, shared, options):
            compare(case)
