#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Calls on a socket in mode AUTO, from host A, while it is not decided yet whether ZRS or TCP carries it, compared with
those on a TCP socket in SYN_SENT.

  undecided.py SILENT LATER   prints a line for each thing it looked at

No packet to the two addresses is answered; LATER becomes one of host C meanwhile.
"""

import ctypes
import errno
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from hosts import becomes, check, fails, host

ZRS, SOL_ZRS, ZRS_INFO, ZRS_TCP, AUTO = 253, 0x5A52, 2, 3, 1
BY_TCP, SLOW = 2, 6
SOL = socket.SOL_SOCKET
LIMIT = struct.pack("qq", 0, 300000)  # 0.3 s
SILENT, LATER = (sys.argv[1], 7000), (sys.argv[2], 7001)
libc = ctypes.CDLL(None, use_errno=True)


def parameter(name, value):
    with open("/sys/module/zrs/parameters/" + name, "w") as f:
        f.write(str(value))


def plain():
    return socket.socket()


def new():
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, ZRS)
    s.setsockopt(SOL_ZRS, ZRS_TCP, AUTO)
    return s


def connect(s, at):
    """The system call, which Python would repeat after a signal."""
    addr = struct.pack("=H", socket.AF_INET) + struct.pack("!H", at[1]) + socket.inet_aton(at[0]) + bytes(8)
    if libc.connect(s.fileno(), addr, len(addr)) == 0:
        return "no error"
    return errno.errorcode[ctypes.get_errno()]


def interrupted(s, at):
    """connect(), which a signal ends."""
    s.setblocking(True)
    # More than one: the first may come before the call.
    signal.setitimer(signal.ITIMER_REAL, 0.3, 0.3)
    seen = connect(s, at)
    signal.setitimer(signal.ITIMER_REAL, 0)
    return seen


def started(make):
    s = make()
    s.setblocking(False)
    return s, connect(s, SILENT)


def events(s):
    poll = select.poll()
    poll.register(s, select.POLLIN | select.POLLOUT | select.POLLRDHUP)
    return [event for _, event in poll.poll(0)]


def looks(make):
    s, first = started(make)
    return {
        "connect()": first,
        "connect() again": connect(s, SILENT),
        "poll()": events(s),
        "SO_ERROR": s.getsockopt(SOL, socket.SO_ERROR),
        "getpeername()": fails(s.getpeername),
        "listen()": fails(s.listen),
        "bind()": fails(s.bind, ("0.0.0.0", 0)),
    }


def signalled(make):
    s = make()
    seen = {"connect()": interrupted(s, SILENT), "connect() again": interrupted(s, SILENT)}
    s.setblocking(False)
    seen["without waiting"] = connect(s, SILENT)
    s.setblocking(True)
    s.setsockopt(SOL, socket.SO_SNDTIMEO, struct.pack("qq", 20, 0))
    seen["with a time limit"] = interrupted(s, SILENT)
    return seen


def limited(make):
    s = make()
    s.setsockopt(SOL, socket.SO_SNDTIMEO, LIMIT)
    seen = {"connect()": connect(s, SILENT), "connect() again": connect(s, SILENT)}
    s.setblocking(False)
    seen["without waiting"] = connect(s, SILENT)
    return seen


def opened(make):
    """Interrupted, and open later."""
    with host("C"):
        there = socket.create_server(("0.0.0.0", LATER[1]))
    there.settimeout(20)
    s = make()
    seen = {"interrupted": interrupted(s, LATER)}
    with address_of_c():
        seen["connect() again"] = connect(s, LATER)
        seen["and once more"] = connect(s, LATER)
        t, peer = there.accept()
        seen["it is the one"] = peer == s.getsockname()
        s.sendall(b"x")
        seen["bytes"] = t.recv(9)
        there.settimeout(0)
        seen["no other one"] = fails(there.accept)
    if make == new:
        carrier = struct.unpack_from("II", s.getsockopt(SOL_ZRS, ZRS_INFO, 256), 112)
        check("opened: the carrier", carrier, (BY_TCP, SLOW))
    there.close()
    return seen


class address_of_c:
    def __enter__(self):
        subprocess.run(["ip", "-n", "zrsC", "addr", "add", LATER[0] + "/32", "dev", "vd"], check=True)

    def __exit__(self, *_):
        subprocess.run(["ip", "-n", "zrsC", "addr", "del", LATER[0] + "/32", "dev", "vd"], check=True)


def shut(make):
    seen = {}
    for name, how in (("SHUT_RD", socket.SHUT_RD), ("SHUT_WR", socket.SHUT_WR), ("SHUT_RDWR", socket.SHUT_RDWR)):
        s, _ = started(make)
        seen[name] = (fails(s.shutdown, how), events(s), s.getsockopt(SOL, socket.SO_ERROR), events(s))
        seen[f"{name}, connect() again"] = (connect(s, SILENT), connect(s, SILENT))
    return seen


def while_waiting(make, act, seconds):
    """What connect() of another thread says, with a time limit; `act` comes meanwhile."""
    s, said = make(), []
    s.setsockopt(SOL, socket.SO_SNDTIMEO, struct.pack("qq", seconds, 0))
    waiter = threading.Thread(target=lambda: said.append(connect(s, SILENT)))
    waiter.start()
    becomes(lambda: events(s), [])  # connecting
    did = act(s)
    waiter.join()
    return did, said


def shut_meanwhile(make):
    return {"shutdown() by another thread": while_waiting(make, lambda s: fails(s.shutdown, socket.SHUT_RDWR), 20)}


def closed_meanwhile(make):
    return {"close() by another thread": while_waiting(make, lambda s: os.close(s.detach()), 2)}


def unspecified():
    """AF_UNSPEC, which ZRS does not have."""
    s, _ = started(new)
    addr = bytes(16)
    done = libc.connect(s.fileno(), addr, len(addr)), errno.errorcode.get(ctypes.get_errno())
    check("connect() to AF_UNSPEC", done, (-1, "ENOTSUP"))  # EOPNOTSUPP
    check("it goes on connecting", (connect(s, SILENT), events(s)), ("EALREADY", []))


signal.signal(signal.SIGALRM, lambda *_: None)  # without SA_RESTART
parameter("connect_timeout_ms", 60000)
for case in (looks, signalled, limited, shut, shut_meanwhile, closed_meanwhile, opened):
    parameter("fallback_ms", 1500 if case == opened else 60000)
    want = case(plain)
    for key, value in case(new).items():
        check(f"{case.__name__}: {key}", value, want[key])
unspecified()
