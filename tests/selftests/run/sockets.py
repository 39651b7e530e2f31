#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""What a program sees of its sockets under `zrs run`: sockets.py PEER PORT [swapped], where a ZRS
server listens; swapped: the process has no_new_privs, so that TCP sockets replace those of ZRS.

Prints a line for each thing it looked at.
"""

import errno
import fcntl
import os
import select
import signal
import socket
import struct
import sys
import threading

TCP, ZRS = 6, 253
SOL_ZRS, ZRS_INFO, BY_TCP = 0x5A52, 2, 2
SET_SIGNAL, GET_SIGNAL, SET_OWNER, GET_OWNER = 10, 11, 15, 16  # F_SETSIG and so on
PEER = (sys.argv[1], int(sys.argv[2]))


def check(name, seen, want):
    if seen == want:
        print(f"ok - {name}")
    else:
        print(f"not ok - {name}: expected {want}, got {seen}")


def protocol(s):
    """TCP: a TCP socket, or a ZRS socket that TCP carries."""
    number = s.getsockopt(socket.SOL_SOCKET, socket.SO_PROTOCOL)
    if number == ZRS and struct.unpack_from("I", s.getsockopt(SOL_ZRS, ZRS_INFO, 256), 112)[0] == BY_TCP:
        return TCP
    return number


def fails(call, *args):
    try:
        call(*args)
    except OSError as e:
        return errno.errorcode[e.errno]
    return "no error"


def listener(family=socket.AF_INET, host="127.0.0.1"):
    s = socket.socket(family)
    s.bind((host, 0))
    s.listen(100)
    return s


def kinds():
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, TCP) as s:
        check("protocol 6 asked for: ZRS", protocol(s), ZRS)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as s:
        check("non-blocking, no protocol: ZRS", protocol(s), ZRS)
        check("non-blocking as asked for", os.get_blocking(s.fileno()), False)
        check("close-on-exec as asked for", os.get_inheritable(s.fileno()), False)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        check("datagrams pass", protocol(s), socket.IPPROTO_UDP)
    with socket.socket(socket.AF_UNIX) as s:
        check("AF_UNIX passes", s.family, socket.AF_UNIX)
    check("a bad protocol: the errno stays", fails(socket.socket, socket.AF_INET, socket.SOCK_STREAM, 17),
          "EPROTONOSUPPORT")


def loopback():
    there = listener()
    check("bound to loopback: TCP", protocol(there), TCP)
    with socket.create_connection(there.getsockname()) as s, there.accept()[0] as t:
        check("connected to loopback: TCP", protocol(s), TCP)
        s.sendall(b"bytes")
        check("and bytes come through", t.recv(10), b"bytes")
    with socket.create_connection(("0.0.0.0", there.getsockname()[1])) as s:
        check("connected to 0.0.0.0, this host: TCP", protocol(s), TCP)
    there6 = listener(socket.AF_INET6, "::1")
    with socket.create_connection(there6.getsockname()[:2]) as s:
        check("connected to ::1: TCP", protocol(s), TCP)
    closed = there.getsockname()
    there.close()
    with socket.socket() as s:
        check("nobody there: the errno stays", fails(s.connect, closed), "ECONNREFUSED")


def carried():
    there = listener()
    s = socket.socket()
    linger = struct.pack("ii", 1, 7)
    timeout = struct.pack("qq", 9, 0)
    sol = socket.SOL_SOCKET
    s.setsockopt(sol, socket.SO_REUSEADDR, 1)
    s.setsockopt(sol, socket.SO_SNDBUF, 50000)
    s.setsockopt(sol, socket.SO_LINGER, linger)
    s.setsockopt(sol, socket.SO_RCVTIMEO, timeout)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    os.set_blocking(s.fileno(), False)
    os.set_inheritable(s.fileno(), True)
    owner = struct.pack("ii", 0, threading.get_native_id())  # F_OWNER_TID
    fcntl.fcntl(s.fileno(), SET_OWNER, owner)
    fcntl.fcntl(s.fileno(), SET_SIGNAL, signal.SIGUSR1)
    number = s.fileno()
    check("a connect that does not wait", s.connect_ex(there.getsockname()) in (0, errno.EINPROGRESS), True)
    check("is TCP", protocol(s), TCP)
    check("at the same descriptor", s.fileno(), number)
    check("SO_REUSEADDR is carried over", s.getsockopt(sol, socket.SO_REUSEADDR), 1)
    check("SO_SNDBUF", s.getsockopt(sol, socket.SO_SNDBUF), 100000)
    check("SO_LINGER", s.getsockopt(sol, socket.SO_LINGER, 8), linger)
    check("SO_RCVTIMEO", s.getsockopt(sol, socket.SO_RCVTIMEO, 16), timeout)
    check("TCP_NODELAY", s.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY), 1)
    check("O_NONBLOCK", os.get_blocking(s.fileno()), False)
    check("no close-on-exec", os.get_inheritable(s.fileno()), True)
    check("F_SETOWN_EX", fcntl.fcntl(s.fileno(), GET_OWNER, bytes(8)), owner)
    check("F_SETSIG", fcntl.fcntl(s.fileno(), GET_SIGNAL), signal.SIGUSR1)
    with open("/proc/sys/net/ipv4/tcp_rmem") as f:
        default = int(f.read().split()[1])
    check("SO_RCVBUF was not set: TCP's own", there.getsockopt(sol, socket.SO_RCVBUF), default)
    s.close()

    s = socket.socket()
    s.bind(("0.0.0.0", 7777))
    check("bound to 0.0.0.0: ZRS", protocol(s), ZRS)
    s.connect(there.getsockname())
    check("then connected to loopback: TCP", protocol(s), TCP)
    check("the port is carried over", s.getsockname(), ("127.0.0.1", 7777))


def epoll():
    there = listener()
    polls = [select.epoll() for _ in range(3)]
    s = socket.socket()
    other = socket.socket()
    s.setblocking(False)
    polls[0].register(s, select.EPOLLOUT | select.EPOLLET)
    polls[1].register(s, select.EPOLLIN | select.EPOLLRDHUP)
    polls[2].register(other, 0)
    s.connect_ex(there.getsockname())
    t, _ = there.accept()
    check("registered before connect(): EPOLLOUT", polls[0].poll(10), [(s.fileno(), select.EPOLLOUT)])
    check("EPOLLET", polls[0].poll(0), [])
    t.send(b"x")
    check("in a second epoll, EPOLLIN", polls[1].poll(10), [(s.fileno(), select.EPOLLIN)])
    t.close()
    s.recv(10)
    check("EPOLLRDHUP", polls[1].poll(10), [(s.fileno(), select.EPOLLIN | select.EPOLLRDHUP)])
    check("where it was not registered it is not", fails(polls[2].modify, s, 0), "ENOENT")


def decided():
    there = listener()
    with socket.create_connection(PEER) as s:
        check("connected to the peer: ZRS", protocol(s), ZRS)
        check("and no second time", fails(s.connect, there.getsockname()), "EISCONN")
        check("it is still ZRS", protocol(s), ZRS)
    with socket.socket() as s:
        check("bad addresses: the errno stays", fails(s.bind, ("192.0.2.1", 0)), "EADDRNOTAVAIL")
        check("it is still ZRS", protocol(s), ZRS)


def forked():
    there = listener()
    pid = os.fork()
    if pid == 0:
        with socket.create_connection(PEER) as s, socket.create_connection(there.getsockname()) as t:
            os._exit(0 if (protocol(s), protocol(t)) == (ZRS, TCP) else 1)
    check("in a forked child", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)


def threads():
    there = listener()
    bad = []

    def connect():
        for _ in range(20):
            with socket.create_connection(there.getsockname()) as s, socket.socket() as z:
                if (protocol(s), protocol(z)) != (TCP, ZRS):
                    bad.append(s)

    def accept():
        for _ in range(80):
            there.accept()[0].close()

    all_of_them = [threading.Thread(target=connect) for _ in range(4)] + [threading.Thread(target=accept)]
    for t in all_of_them:
        t.start()
    for t in all_of_them:
        t.join()
    check("four threads at once", bad, [])


def shared():
    """The same socket by another descriptor."""
    there = listener()
    with socket.socket() as s, s.dup() as other, socket.create_connection(there.getsockname()) as fresh:
        s.connect(there.getsockname())
        check("a duplicate from before connect(): the same socket", protocol(other), protocol(fresh))
        check("and connected", fails(other.getpeername), "no error")


cases = [kinds, loopback, carried, epoll, decided, forked, threads, shared]
if sys.argv[3:] == ["swapped"]:
    # There the duplicate stays a ZRS socket.
    cases.remove(shared)
for case in cases:
    case()
