# SPDX-License-Identifier: GPL-2.0
"""For the comparisons of datagram sockets with UDP's: each case runs with both protocols, from host A to
host B, and must see the same."""

import ctypes
import errno
import fcntl
import os
import select
import socket
import struct
import sys
import termios
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from hosts import check, datagram, fails, host, PATIENCE, SCALE, UDP, ZRS

BESIDE = "both"
SOL = socket.SOL_SOCKET
A, B = os.environ["ADDR_A"], os.environ["ADDR_B"]
A6, B6 = os.environ["ADDR6_A"], os.environ["ADDR6_B"]
V4, V6 = socket.AF_INET, socket.AF_INET6
libc = ctypes.CDLL(None, use_errno=True)


class Kind:
    """One protocol and family, with sockets in both hosts."""

    def __init__(self, proto, family):
        self.beside, self.family = proto == BESIDE, family
        self.proto = ZRS if self.beside else proto
        self.a, self.b = (A, B) if family == V4 else (A6, B6)
        self.any = "0.0.0.0" if family == V4 else "::"
        self.open = []

    def sock(self, name, at=None, before=lambda s: None):
        def begin(s):
            self.open.append(s)
            before(s)

        return datagram(name, at, self.proto, self.family, self.beside, begin)

    def server(self, before=lambda s: None):
        return self.sock("B", (self.b, 0), before)

    def client(self):
        return self.sock("A", (self.a, 0))

    def pair(self):
        """A server, and a client connected to it, with a datagram each way done."""
        there, s = self.server(), self.client()
        s.connect(there.getsockname())
        # On a busy machine a link may not be made in time, or give no room: a datagram is lost with it.
        late = time.monotonic() + 80 * PATIENCE
        again = False
        s.send(b"first")
        while there not in (found := select.select([there, s], [], [], 10 * PATIENCE)[0]) and time.monotonic() < late:
            if s in found:
                check(f"a lost link, {self.family.name}", fails(s.recv, 10), "EHOSTUNREACH")
            s.send(b"first")
            again = True
        there.recvfrom(10)
        # Both may arrive.
        while again and wait(there, 1):
            there.recvfrom(10)
        there.sendto(b"back", s.getsockname())
        s.recv(10)
        return there, s

    def close(self):
        for s in self.open:
            s.close()
        self.open = []


def nothing(s):
    """What recv() says where nothing is to be had. With a time limit, Python waits."""
    s.setblocking(False)
    try:
        return fails(s.recv, 10)
    finally:
        s.settimeout(20 * PATIENCE)


def patient(s):
    """Without a time limit, for which Python looks whether it is readable."""
    s.setblocking(True)
    return s


def fionread(s):
    return struct.unpack("i", fcntl.ioctl(s, termios.FIONREAD, bytes(4)))[0]


def wait(s, seconds=20):
    return bool(select.select([s], [], [], seconds * PATIENCE)[0])


def connect_raw(s, addr):
    rc = libc.connect(s.fileno(), addr, len(addr))
    return "no error" if rc == 0 else errno.errorcode[ctypes.get_errno()]


def free_port(k, name="A"):
    s = k.sock(name, (k.any, 0))
    port = s.getsockname()[1]
    s.close()
    return port


def run(cases, not_beside=()):
    """Runs the cases that the command line names, or all; `not_beside`: without --udp alone."""
    ours = BESIDE if "--udp" in sys.argv else ZRS
    wanted = [arg for arg in sys.argv[1:] if arg != "--udp"]
    for case in cases:
        if wanted and case.__name__ not in wanted or case in not_beside and ours == BESIDE:
            continue
        for family in (V4, V6):
            seen, begin = [], time.monotonic()
            for proto in (UDP, ours):
                k = Kind(proto, family)
                try:
                    seen.append(case(k))
                except OSError as e:
                    seen.append({"the case": f"{type(e).__name__}: {e} (line {e.__traceback__.tb_next.tb_lineno})"})
                finally:
                    k.close()
            v6 = "" if family == V4 else ", IPv6"
            print(f"# {case.__name__}{v6}: {time.monotonic() - begin:.1f} s", flush=True)
            want, got = seen
            if "the case" in want:
                check(f"{case.__name__}{v6}: with UDP", want.pop("the case"), "no error")
            for key in sorted(set(want) | set(got)):
                check(f"{case.__name__}{v6}: {key}", got.get(key), want.get(key))
