#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""TCP beside ZRS, on a listener: what a server in host B sees of TCP and ZRS clients in host A.

  listen.py            prints a line for each thing it looked at
  listen.py alone      the same where ZRS cannot listen
  listen.py hold PORT  accepts one TCP connection with ZRS, closes the listener, says "held" and stays

Where both have an answer, it is compared with that of a plain TCP listener and a TCP client.
"""

import ctypes
import fcntl
import os
import select
import signal
import socket
import struct
import sys
import threading
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from hosts import PATIENCE, check, fails, host

TCP, ZRS, ZRS_AUTO = 6, 253, 254
SOL_ZRS, ZRS_INFO, ZRS_TCP = 0x5A52, 2, 3
BY_TCP, NO_RESOURCES = 2, 8
NEVER, AUTO, REQUIRED, ONLY = range(4)
A, B = os.environ["ADDR_A"], os.environ["ADDR_B"]
A6, B6 = os.environ["ADDR6_A"], os.environ["ADDR6_B"]
SOL = socket.SOL_SOCKET
SOON = 20 * PATIENCE


def client(proto, at):
    """A connection to a listener's address from host A."""
    family = socket.AF_INET6 if len(at) == 4 else socket.AF_INET
    with host("A"):
        s = socket.socket(family, socket.SOCK_STREAM, proto)
    s.settimeout(SOON)
    try:
        s.connect(at)
    except OSError:
        s.close()
        raise
    return s


def sock(proto, mode=None, family=socket.AF_INET):
    s = socket.socket(family, socket.SOCK_STREAM, proto)
    if mode is not None:
        s.setsockopt(SOL_ZRS, ZRS_TCP, mode)
    return s


def listener(proto, mode=None, family=socket.AF_INET, at=None, before=lambda s: None):
    s = sock(proto, mode, family)
    before(s)
    s.bind(at or ((B, 0) if family == socket.AF_INET else (B6, 0)))
    s.listen(64)
    return s


def protocol(s):
    return s.getsockopt(SOL, socket.SO_PROTOCOL)


# Each case runs three times: a plain TCP listener says what is right, then one for both with a
# client of either kind. It returns what it has seen.
KINDS = (("TCP client", AUTO, TCP), ("ZRS client", AUTO, ZRS))


def compare(case, families=(socket.AF_INET,)):
    for family in families:
        want = case(lambda **k: listener(TCP, None, family, **k), lambda at: client(TCP, at))
        for name, mode, proto in KINDS:
            seen = case(lambda **k: listener(ZRS, mode, family, **k), lambda at: client(proto, at))
            for key, value in seen.items():
                v6 = "" if family == socket.AF_INET else ", IPv6"
                check(f"{case.__name__}, {name}{v6}: {key}", value, want[key])


def names(listen, connect):
    there = listen()
    s = connect(there.getsockname())
    t, peer = there.accept()
    return {
        "accept() gives the peer's address": peer == s.getsockname(),
        "getpeername()": t.getpeername() == peer,
        "getsockname()": t.getsockname() == there.getsockname(),
        "accept() without another one": fails(nonblocking(there).accept),
    }


def nonblocking(s):
    s.setblocking(False)
    return s


def stream(listen, connect):
    there = listen()
    s = connect(there.getsockname())
    t, _ = there.accept()
    t.settimeout(SOON)
    data = os.urandom(300000)
    sender = threading.Thread(target=s.sendall, args=(data,))
    sender.start()
    got = b"".join(read(t, len(data)))
    sender.join()
    t.sendall(b"back")
    back = s.recv(10)
    s.shutdown(socket.SHUT_WR)
    return {"bytes": got == data, "and back": back, "the end": t.recv(10)}


def read(s, n):
    while n > 0:
        part = s.recv(min(n, 65536))
        if not part:
            return
        n -= len(part)
        yield part


def readiness(listen, connect):
    level, edge, once, exclusive, within, nested, nested_edge = (select.epoll() for _ in range(7))
    early = select.poll()

    def register(s):
        level.register(s, select.EPOLLIN)
        edge.register(s, select.EPOLLIN | select.EPOLLET)
        # Not looked at before listen(): a fresh socket has an event, which would use it up.
        once.register(s, select.EPOLLIN | select.EPOLLONESHOT)
        exclusive.register(s, select.EPOLLIN | select.EPOLLEXCLUSIVE)
        within.register(s, select.EPOLLIN)
        nested.register(within, select.EPOLLIN)
        nested_edge.register(within, select.EPOLLIN | select.EPOLLET)
        early.register(s, select.POLLIN)

    there = listen(before=register)
    level.poll(0), edge.poll(0), nested_edge.poll(0)
    every = (level, edge, once, exclusive, within, nested, nested_edge, early)
    seen = {"before": ([x.poll(0) for x in every], select.select([there], [], [], 0)[0])}
    s = connect(there.getsockname())
    events = lambda found: [event for _, event in found]
    seen["epoll"] = events(level.poll(SOON))
    seen["epoll, edge-triggered"] = events(edge.poll(SOON))
    seen["epoll, one-shot"] = (events(once.poll(SOON)), once.poll(0))
    seen["epoll, exclusive"] = events(exclusive.poll(SOON))
    seen["epoll, nested"] = events(nested.poll(SOON))
    seen["epoll, nested, edge-triggered"] = (events(nested_edge.poll(SOON)), nested_edge.poll(0))
    seen["poll"] = events(early.poll(20000))
    seen["select"] = bool(select.select([there], [], [], SOON)[0])
    seen["edge once"] = events(edge.poll(0))
    late = select.epoll()
    late.register(there, select.EPOLLIN | select.EPOLLEXCLUSIVE)
    seen["registered late"] = events(late.poll(SOON))
    s2 = connect(there.getsockname())
    seen["a second edge"] = (events(edge.poll(SOON)), events(nested_edge.poll(SOON)))
    seen["one-shot, until it is armed again"] = once.poll(0)
    once.modify(there, select.EPOLLIN | select.EPOLLONESHOT)
    seen["one-shot, armed again"] = events(once.poll(SOON))
    there.accept(), there.accept()
    seen["after"] = [x.poll(0) for x in (*every, late)]
    s.close(), s2.close()
    return seen


def woken(listen, connect):
    got = []
    there = listen()
    old = signal.signal(signal.SIGIO, lambda *_: got.append(1))
    fcntl.fcntl(there, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(there, fcntl.F_SETFL, fcntl.fcntl(there, fcntl.F_GETFL) | os.O_ASYNC)
    s = connect(there.getsockname())
    select.select([there], [], [], SOON)
    late = time.monotonic() + SOON
    while not got and time.monotonic() < late:  # a connection is there before its signal is sent
        time.sleep(0.01)
    fcntl.fcntl(there, fcntl.F_SETFL, fcntl.fcntl(there, fcntl.F_GETFL) & ~os.O_ASYNC)
    signal.signal(signal.SIGIO, old)
    there.accept()[0].close()
    blocked = threading.Thread(target=lambda: there.accept()[0].close())
    blocked.start()
    blocked.join(0.2)
    waits = blocked.is_alive()
    s2 = connect(there.getsockname())
    blocked.join(SOON)
    seen = {"SIGIO": bool(got), "accept() waits": waits, "and is woken": not blocked.is_alive()}
    there.settimeout(0.1)
    seen["a time limit"] = timed_out(there)
    s.close(), s2.close()
    return seen


def timed_out(s):
    try:
        s.accept()
    except TimeoutError:
        return True
    return False


def inherited(listen, connect):
    linger, timeout = struct.pack("ii", 1, 7), struct.pack("qq", 9, 0)

    def early(s):
        s.setsockopt(SOL, socket.SO_REUSEADDR, 1)
        s.setsockopt(SOL, socket.SO_KEEPALIVE, 1)
        s.setsockopt(SOL, socket.SO_LINGER, linger)
        s.setsockopt(SOL, socket.SO_RCVBUF, 100000)
        s.setsockopt(TCP, socket.TCP_KEEPIDLE, 77)
        s.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 16)

    there = listen(before=early)
    there.setsockopt(SOL, socket.SO_SNDBUF, 90000)
    there.setsockopt(SOL, socket.SO_RCVTIMEO, timeout)
    there.setsockopt(TCP, socket.TCP_KEEPCNT, 5)
    s = connect(there.getsockname())
    t = there.accept()[0]
    seen = {
        "SO_KEEPALIVE": t.getsockopt(SOL, socket.SO_KEEPALIVE),
        "SO_LINGER": t.getsockopt(SOL, socket.SO_LINGER, 8),
        "SO_RCVBUF": t.getsockopt(SOL, socket.SO_RCVBUF),
        "TCP_KEEPIDLE": t.getsockopt(TCP, socket.TCP_KEEPIDLE),
        "IP_TOS": t.getsockopt(socket.IPPROTO_IP, socket.IP_TOS),
        "SO_SNDBUF, set late": t.getsockopt(SOL, socket.SO_SNDBUF),
        "SO_RCVTIMEO, set late": t.getsockopt(SOL, socket.SO_RCVTIMEO, 16),
        "TCP_KEEPCNT, set late": t.getsockopt(TCP, socket.TCP_KEEPCNT),
    }
    s.close(), t.close()
    return seen


def ends(listen, connect):
    reuse = lambda s: s.setsockopt(SOL, socket.SO_REUSEADDR, 1)
    # TCP keeps a port beyond shutdown() only if the program has named it.
    there = listen()
    at = there.getsockname()
    there.close()
    there = listen(at=at, before=reuse)
    there.shutdown(socket.SHUT_RD)
    seen = {"shutdown() of the listener": fails(connect, at), "accept() after it": fails(there.accept)}
    there.listen(5)
    s = connect(at)
    t = there.accept()[0]
    seen["listen() again"] = t.getsockname() == at
    queued = connect(at)
    there.close()
    seen["closed with one in its queue"] = gone(queued)
    seen["and refused"] = fails(connect, at)
    s.sendall(b"x")
    seen["the accepted one lives on"] = t.recv(1)
    # The server's end is the first to close.
    t.close(), s.close()
    again = listen(at=at, before=reuse)
    seen["stopped and started again"] = again.getsockname() == at
    return seen


def gone(s):
    try:
        return s.recv(1) == b""
    except ConnectionResetError:
        return True


def full(listen, connect):
    there = listen()
    there.listen(2)
    at, made = there.getsockname(), []
    for _ in range(9):
        caller = threading.Thread(target=lambda: made.append(connect(at)))
        caller.start()
        caller.join(SOON if len(made) < 2 else 1)  # where room is expected a slow machine gets time
        if caller.is_alive():
            break
    n = len(made)
    # TCP takes one more than listen() says.
    seen = {"as many wait as listen() says": n in (2, 3), "the next connect() waits": caller.is_alive()}
    there.settimeout(SOON)
    accepted = [there.accept()[0] for _ in range(n)]
    caller.join(SOON)
    seen["until there is room"] = len(made) == n + 1
    accepted.append(there.accept()[0])
    for s in made:
        s.sendall(b"x")
    for t in accepted:
        t.settimeout(SOON)
    seen["each is served"] = [t.recv(9) for t in accepted] == [b"x"] * len(accepted) == [b"x"] * len(made)
    return seen


def crowded():
    """A client in mode AUTO that finds the backlog of ZRS full waits, and does not go to that of TCP."""
    there = sock(ZRS, AUTO)
    there.bind((B, 0))
    there.listen(1)
    at, late = there.getsockname(), []
    first = client(ZRS, at)
    waiter = threading.Thread(target=lambda: late.append(client(ZRS_AUTO, at)))
    waiter.start()
    with host("A"):
        s = sock(ZRS_AUTO)
    s.setsockopt(TCP, 18, 1000)  # TCP_USER_TIMEOUT
    gave_up = fails(s.connect, at)
    check("a full backlog, mode AUTO: connect() gives up", gave_up, "ETIMEDOUT")
    check("a full backlog, mode AUTO: the other one waits", (waiter.is_alive(), late), (True, []))
    check("a full backlog, mode AUTO: no connection of TCP", connections(at), [])
    there.settimeout(SOON)
    kinds = [protocol(there.accept()[0]) for _ in range(2)]
    waiter.join(SOON)
    check("a full backlog, mode AUTO: then ZRS carries it", (kinds, len(late)), ([ZRS, ZRS], 1))
    there.settimeout(0)
    check("a full backlog, mode AUTO: no other connection", fails(there.accept), "EAGAIN")
    first.close()


def connections(at):
    """The TCP sockets of this host at the port which do not listen."""
    with open("/proc/thread-self/net/tcp") as f:
        rows = [line.split() for line in f][1:]
    return [row for row in rows if row[1].endswith(f":{at[1]:04X}") and row[3] != "0A"]


def forked(listen, connect):
    there = listen()
    pid = os.fork()
    if pid == 0:
        t = there.accept()[0]
        t.sendall(b"child")
        os._exit(0)
    s = connect(there.getsockname())
    got = s.recv(10)
    os.waitpid(pid, 0)
    return {"a child accepts": got}


def ports():
    there = listener(ZRS, AUTO)
    at = there.getsockname()
    check("a TCP socket cannot bind the port", fails(sock(TCP).bind, at), "EADDRINUSE")
    check("nor can one for both", fails(sock(ZRS, AUTO).bind, at), "EADDRINUSE")
    tcp = listener(TCP)
    both = sock(ZRS, AUTO)
    check("a port of TCP's: bind() says so", fails(both.bind, tcp.getsockname()), "EADDRINUSE")
    both.bind((B, 0))
    both.listen()
    check("and another one can be had", client(TCP, both.getsockname()).getpeername(), both.getsockname())
    never = sock(ZRS)
    never.bind(tcp.getsockname())
    check("without TCP it is another space", never.getsockname(), tcp.getsockname())
    unbound = sock(ZRS, AUTO)
    unbound.listen()
    port = unbound.getsockname()[1]
    check("listen() without bind()", client(TCP, (B, port)).getpeername(), (B, port))
    wild = listener(ZRS, AUTO, at=("0.0.0.0", 0))
    port = wild.getsockname()[1]
    for name, proto, to in (("TCP", TCP, B), ("ZRS", ZRS, B)):
        s = client(proto, (to, port))
        t, peer = wild.accept()
        check(f"a wildcard, {name}: the protocol of the connection", protocol(t), proto)
        check(f"a wildcard, {name}: its name", (t.getsockname(), peer[0]), ((B, port), A))
    with socket.create_connection(("127.0.0.1", port)):
        check("a wildcard, its own host by loopback", wild.accept()[1][0], "127.0.0.1")


def shared():
    reuse = lambda s: s.setsockopt(SOL, socket.SO_REUSEPORT, 1)
    first = listener(ZRS, AUTO, before=reuse)
    at = first.getsockname()
    second = listener(ZRS, AUTO, at=at, before=reuse)
    tcp = listener(TCP, at=at, before=reuse)
    for s in (first, second, tcp):
        s.setblocking(False)
    for name, proto, group in (("TCP", TCP, (first, second, tcp)), ("ZRS", ZRS, (first, second))):
        clients = [client(proto, at) for _ in range(24)]
        took = all_taken(group, len(clients))
        check(f"SO_REUSEPORT, {name}: each connection is accepted", sum(took, []), [proto] * len(clients))
        check(f"SO_REUSEPORT, {name}: by several listeners", sum(map(bool, took)) > 1, True)
    check("SO_REUSEPORT, ZRS: none waits at the listener of TCP", len(list(taken(tcp))), 0)
    second.close()
    clients = [client(ZRS, at) for _ in range(8)]
    check("SO_REUSEPORT, ZRS: those that are left take all", all_taken((first,), 8)[0], [ZRS] * 8)


def all_taken(group, n):
    """The protocols of what each listener gets until there are `n`: the last ones may be on their way."""
    took, late = [[] for _ in group], time.monotonic() + SOON
    while sum(map(len, took)) < n and time.monotonic() < late:
        for s, mine in zip(group, took):
            mine += [protocol(t) for t in taken(s)]
        time.sleep(0.01)
    return took


def taken(s):
    while True:
        try:
            yield s.accept()[0]
        except BlockingIOError:
            return


def mixed():
    there = listener(ZRS, AUTO)
    at = there.getsockname()
    clients = [client(TCP if i % 2 else ZRS, at) for i in range(12)]
    kinds = [protocol(there.accept()[0]) for _ in clients]
    check("both wait: they take turns", sorted(set(zip(kinds, kinds[1:]))), [(TCP, ZRS), (ZRS, TCP)])
    got = []

    def accept():
        while len(got) < 40:
            try:
                t = there.accept()[0]
            except BlockingIOError:
                return
            got.append(protocol(t))
            t.close()

    # They wait in the call itself, and not in poll().
    there.setsockopt(SOL, socket.SO_RCVTIMEO, struct.pack("qq", 15, 0))
    threads = [threading.Thread(target=accept) for _ in range(4)]
    for t in threads:
        t.start()
    clients = [client(TCP if i % 3 else ZRS, at) for i in range(40)]
    for t in threads:
        t.join()
    check("four threads in accept()", (len(got), got.count(ZRS)), (40, 14))


def numbers():
    """The protocol number of programs that asked for TCP."""
    drain = "/sys/module/zrs/parameters/drain"
    for family in (socket.AF_INET, socket.AF_INET6):
        s = sock(ZRS_AUTO, family=family)
        seen = s.getsockopt(SOL_ZRS, ZRS_TCP), protocol(s)
        check(f"protocol 254, family {family}: its mode and SO_PROTOCOL", seen, (AUTO, ZRS))
    with open(drain, "w") as f:
        f.write("1")
    for family in (socket.AF_INET, socket.AF_INET6):
        check(f"drained: protocol 254, family {family}", fails(sock, ZRS_AUTO, None, family), "EPROTONOSUPPORT")
    with open(drain, "w") as f:
        f.write("0")
    there = listener(ZRS_AUTO)
    for proto in (TCP, ZRS):
        s = client(proto, there.getsockname())
        check(f"protocol 254: a client of protocol {proto}", protocol(there.accept()[0]), proto)


def modes():
    s = sock(ZRS)
    check("the mode of a new socket", s.getsockopt(SOL_ZRS, ZRS_TCP), NEVER)
    for mode in (AUTO, REQUIRED, NEVER):
        s.setsockopt(SOL_ZRS, ZRS_TCP, mode)
        check(f"mode {mode} is kept", s.getsockopt(SOL_ZRS, ZRS_TCP), mode)
    check("an unknown mode", fails(s.setsockopt, SOL_ZRS, ZRS_TCP, 9), "EINVAL")
    check("too short", fails(s.setsockopt, SOL_ZRS, ZRS_TCP, b"\1"), "EINVAL")
    s.bind((B, 0))
    check("after bind()", fails(s.setsockopt, SOL_ZRS, ZRS_TCP, AUTO), "EINVAL")
    busy = sock(TCP)
    busy.bind(s.getsockname())
    check("mode ONLY where TCP has the port", fails(s.setsockopt, SOL_ZRS, ZRS_TCP, ONLY), "EADDRINUSE")
    check("the mode is as before", s.getsockopt(SOL_ZRS, ZRS_TCP), NEVER)
    busy.close()
    s.listen()
    check("mode ONLY after listen()", fails(s.setsockopt, SOL_ZRS, ZRS_TCP, ONLY), "EINVAL")
    check("never: TCP is refused", fails(client, TCP, s.getsockname()), "ECONNREFUSED")
    strict = listener(ZRS, REQUIRED, before=lambda s: s.setsockopt(SOL, socket.SO_REUSEADDR, 1))
    at = strict.getsockname()
    check("required: TCP is refused", fails(client, TCP, at), "ECONNREFUSED")
    check("required: the port is taken", fails(sock(TCP).bind, at), "EADDRINUSE")
    reuse = sock(TCP)
    reuse.setsockopt(SOL, socket.SO_REUSEADDR, 1)
    check("required: SO_REUSEADDR does not help", "EADDRINUSE" in (fails(reuse.bind, at), fails(reuse.listen)), True)
    c = client(ZRS, at)
    check("required: ZRS is accepted", protocol(strict.accept()[0]), ZRS)
    group = lambda s: s.setsockopt(SOL, socket.SO_REUSEPORT, 1)
    strict = listener(ZRS, REQUIRED, before=group)
    at = strict.getsockname()
    check("required, SO_REUSEPORT: TCP is refused", fails(client, TCP, at), "ECONNREFUSED")
    other = listener(ZRS, REQUIRED, at=at, before=group)
    check("required, SO_REUSEPORT: two share the port, and TCP is refused", fails(client, TCP, at), "ECONNREFUSED")
    check("required, SO_REUSEPORT: not with a TCP socket without it", fails(sock(TCP).bind, at), "EADDRINUSE")
    os.seteuid(65534)
    foreign = sock(TCP)
    os.seteuid(0)
    group(foreign)
    check("required, SO_REUSEPORT: not with another user's", fails(foreign.bind, at), "EADDRINUSE")
    tcp = listener(TCP, at=at, before=group)
    s = client(TCP, at)
    check("required, SO_REUSEPORT: a TCP listener of the group takes TCP clients", tcp.accept()[1], s.getsockname())
    for there in (strict, other):
        there.setblocking(False)
        check("required, SO_REUSEPORT: and no other socket does", fails(there.accept), "EAGAIN")
    odd = sock(ZRS, AUTO)
    odd.setsockopt(SOL, socket.SO_INCOMING_CPU, 0)
    check("an option that is not carried over makes the TCP socket", fails(odd.setsockopt, SOL_ZRS, ZRS_TCP, NEVER), "EINVAL")
    odd.bind((B, 0))
    odd.listen()
    client(TCP, odd.getsockname())
    check("and it has it", odd.accept()[0].getsockopt(SOL, socket.SO_PROTOCOL), TCP)


def restricted():
    """Landlock, which needs no_new_privs, would not see the inner socket's bind()."""
    before, carried, fast = sock(ZRS, AUTO), sock(ZRS, ONLY), 0x20000000  # MSG_FASTOPEN
    pid = os.fork()
    if pid == 0:
        ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)
        late = fails(sock, ZRS, AUTO)
        check("no_new_privs: setsockopt()", late, "EACCES")
        check("no_new_privs: bind() with a mode that was set before", fails(before.bind, (B, 0)), "EACCES")
        check("no_new_privs: MSG_FASTOPEN where TCP carries", fails(carried.sendto, b"x", fast, (A, 1)), "EACCES")
        check("no_new_privs: MSG_FASTOPEN", fails(before.sendto, b"x", fast, (A, 1)), "ENOTSUP")
        s = sock(ZRS)
        s.bind((B, 0))
        check("no_new_privs: without TCP as ever", s.getsockname()[0], B)
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(pid, 0)


def dual():
    both = listener(ZRS, AUTO, socket.AF_INET6, at=("::", 0))
    port = both.getsockname()[1]
    for proto in (TCP, ZRS):
        s = client(proto, (B, port))
        t, peer = both.accept()
        check(f"[::], an IPv4 client, protocol {proto}", (protocol(t), peer[0]), (proto, f"::ffff:{A}"))
        s = client(proto, (B6, port, 0, 0))
        t, peer = both.accept()
        check(f"[::], an IPv6 client, protocol {proto}", (protocol(t), peer[0]), (proto, A6))
    v6only = lambda s: s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    only = listener(ZRS, AUTO, socket.AF_INET6, at=("::", 0), before=v6only)
    check("IPV6_V6ONLY", fails(client, TCP, (B, only.getsockname()[1])), "ECONNREFUSED")
    mapped = listener(ZRS, AUTO, socket.AF_INET6, at=(f"::ffff:{B}", 0))
    s = client(TCP, (B, mapped.getsockname()[1]))
    check("bound to a v4-mapped address", mapped.accept()[1][0], f"::ffff:{A}")


def alone():
    """Another program has ZRS's port of the connection manager."""
    for mode in (NEVER, REQUIRED):
        check(f"ZRS cannot listen, mode {mode}", fails(listener, ZRS, mode), "EADDRNOTAVAIL")
    edge = select.epoll()
    for name, proto, mode in (("mode AUTO", ZRS, AUTO), ("protocol 254", ZRS_AUTO, None)):
        there = listener(proto, mode, before=lambda s: edge.register(s, select.EPOLLIN | select.EPOLLET))
        carrier = struct.unpack_from("II", there.getsockopt(SOL_ZRS, ZRS_INFO, 256), 112)
        listens = there.getsockopt(SOL, socket.SO_ACCEPTCONN)
        check(f"TCP listens alone, {name}", (carrier, listens), ((BY_TCP, NO_RESOURCES), 1))
        edge.poll(0)
        s = client(TCP, there.getsockname())
        check(f"TCP listens alone, {name}: epoll", [event for _, event in edge.poll(SOON)], [select.EPOLLIN])
        t, peer = there.accept()
        seen = (protocol(t), peer, t.getsockname())
        check(f"TCP listens alone, {name}: accept()", seen, (TCP, s.getsockname(), there.getsockname()))
        check(f"TCP listens alone, {name}: listen() again", fails(there.listen, 5), "no error")
        check(f"TCP listens alone, {name}: its port", fails(sock(TCP).bind, there.getsockname()), "EADDRINUSE")
        edge.unregister(there)


def hold(port):
    there = listener(ZRS, AUTO, at=(B, port), before=lambda s: s.setsockopt(SOL, socket.SO_REUSEADDR, 1))
    s = client(TCP, (B, port))
    t = there.accept()[0]
    there.close()
    print("held", flush=True)
    s.sendall(b"x" * 1000)
    while t.recv(1):
        pass


if sys.argv[1:2] == ["hold"]:
    hold(int(sys.argv[2]))
    sys.exit()
if sys.argv[1:2] == ["alone"]:
    alone()
    sys.exit()
for case in (names, stream, readiness, woken, inherited, ends, full, forked):
    compare(case, (socket.AF_INET, socket.AF_INET6) if case in (names, ends) else (socket.AF_INET,))
for case in (ports, shared, crowded, mixed, numbers, modes, restricted, dual):
    case()
