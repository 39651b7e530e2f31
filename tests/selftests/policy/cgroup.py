#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""cgroup.py GROUP: what BPF programs of a control group do to sockets, TCP's and ours; in host B.

Each case runs with a plain TCP socket, which says what is right, and with ZRS sockets of two modes.
Prints a line for each thing it looked at.
"""

import errno
import os
import socket
import struct
import sys

import bpf

GROUP = sys.argv[1]
TCP, ZRS = 6, 253
SOL_ZRS, ZRS_TCP = 0x5A52, 3
NEVER, AUTO = 0, 1
PATIENCE = int(os.environ.get("TIME_SCALE", "1")) * int(os.environ.get("LIMIT_SCALE", "1"))
A, B = os.environ["ADDR_A"], os.environ["ADDR_B"]
A6, B6 = os.environ["ADDR6_A"], os.environ["ADDR6_B"]
V4, V6 = socket.AF_INET, socket.AF_INET6
CLONE_NEWNET = 0x40000000
DENY, ALLOW = bpf.returns(0), bpf.returns(1)


def check(name, seen, want):
    if seen == want:
        print(f"ok - {name}", flush=True)
    else:
        print(f"not ok - {name}: expected {want}, got {seen}", flush=True)


def fails(call, *args):
    try:
        call(*args)
    except OSError as e:
        return errno.errorcode[e.errno]
    return "no error"


def sock(kind, family=V4):
    proto, mode = kind
    s = socket.socket(family, socket.SOCK_STREAM, proto)
    if mode:
        s.setsockopt(SOL_ZRS, ZRS_TCP, mode)
    s.settimeout(20 * PATIENCE)
    return s


def in_a(kind, family=V4):
    with open("/proc/thread-self/ns/net") as here, open("/run/netns/zrsA") as there, bpf.outside(GROUP):
        os.setns(there.fileno(), CLONE_NEWNET)
        try:
            return sock(kind, family)
        finally:
            os.setns(here.fileno(), CLONE_NEWNET)


def peer(kind, family=V4, port=0):
    """A listener in host A, outside of the control group."""
    s = in_a(kind, family)
    s.bind((A if family == V4 else A6, port))
    s.listen()
    return s


def attached(*programs):
    return bpf.attached(GROUP, *programs)


def binding(kind, family, first):
    at = lambda port: (B if family == V4 else B6, port)
    bind, post = (bpf.BIND, bpf.POST_BIND) if family == V4 else (bpf.BIND6, bpf.POST_BIND6)
    seen = {}
    s = sock(kind, family)
    with attached((bind, DENY)):
        seen["bind() denied"] = fails(s.bind, at(first))
    with attached((bind, ALLOW)):
        seen["bind() allowed, after one that was denied"] = fails(s.bind, at(first))
    with attached((bind, DENY)):
        seen["a denied second bind()"] = fails(s.bind, at(first))
    to = bpf.mov(2, bpf.be16(first + 1)) + bpf.store(1, bpf.USER_PORT, 2)
    with attached((bind, to + bpf.returns(1))):
        s = sock(kind, family)
        s.bind(at(0))
        seen["bind() to another port"] = s.getsockname()[1] - first
        seen["which is taken"] = fails(sock(kind, family).bind, at(first + 9))
    ports = bpf.load(2, 1, bpf.USER_PORT) + bpf.host16(2)
    ports += bpf.skip_if("<", 2, first + 2, 3) + bpf.skip_if(">", 2, first + 3, 2)
    with attached((bind, ports + bpf.returns(1) + DENY)):
        for port in range(first + 1, first + 5):
            seen[f"a range of ports, {port - first}"] = fails(sock(kind, family).bind, at(port))
    s = sock(kind, family)
    with attached((post, DENY)):
        seen["the port denied after bind()"] = fails(s.bind, at(first + 5))
        seen["and one that is chosen"] = fails(sock(kind, family).bind, at(0))
        seen["its name"] = s.getsockname()[1]
        seen["listen() chooses one"] = fails(sock(kind, family).listen)
    with attached((bind, DENY)):
        seen["listen() chooses one, bind() denied"] = fails(sock(kind, family).listen)
    seen["the port is free"] = fails(s.bind, at(first + 5))
    by_port = bpf.load(2, 1, bpf.SOCK_PORT) + bpf.skip_if("==", 2, first + 6, 2)
    with attached((post, by_port + bpf.returns(1) + DENY)):
        seen["one port denied"] = fails(sock(kind, family).bind, at(first + 6))
        seen["another one not"] = fails(sock(kind, family).bind, at(first + 7))
    return seen


def low_ports(kind, family, first):
    """Without CAP_NET_BIND_SERVICE."""
    at = (B, first) if family == V4 else (B6, first)
    bind = bpf.BIND if family == V4 else bpf.BIND6
    read, write = os.pipe()
    with attached((bind, bpf.returns(3))):
        pid = os.fork()
        if pid == 0:
            os.setresuid(65534, 65534, 65534)
            os.write(write, fails(sock(kind, family).bind, at).encode())
            os._exit(0)
        os.waitpid(pid, 0)
    return {"a low port that a program allows": os.read(read, 100).decode()}


def connecting(kind, family, first):
    connect = bpf.CONNECT if family == V4 else bpf.CONNECT6
    there = peer(kind, family, first)
    at = there.getsockname()
    seen = {}
    s = sock(kind, family)
    # A socket that does not block may be told of its connection by a second connect(), or by the
    # first one if the handshake is that fast; one that blocks is told by the first.
    s.settimeout(None)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 20, 0))
    with attached((connect, DENY)):
        seen["connect() denied"] = fails(s.connect, at)
    with attached((connect, ALLOW)):
        seen["connect() allowed after it"] = fails(s.connect, at)
        seen["and again"] = fails(s.connect, at)
    there.accept()
    to = bpf.mov(2, bpf.be16(first)) + bpf.store(1, bpf.USER_PORT, 2)
    if family == V4:
        to += bpf.mov(2, bpf.be32(A)) + bpf.store(1, bpf.USER_IP4, 2)
    with attached((connect, to + bpf.returns(1))):
        s = sock(kind, family)
        s.connect(("198.51.100.7", 9) if family == V4 else (A6, 9))
        t = there.accept()[0]
        s.sendall(b"redirected")
        seen["connect() to another address"] = t.recv(100), s.getpeername() == at
    # bpf_bind() of the own address, without a port.
    if family == V4:
        own = bpf.copy(6, 1) + bpf.mov(2, V4) + bpf.store(10, -16, 2) + bpf.mov(2, bpf.be32(B)) + bpf.store(10, -12, 2)
        own += bpf.mov(2, 0) + bpf.store(10, -8, 2) + bpf.store(10, -4, 2)
        own += bpf.copy(1, 6) + bpf.copy(2, 10) + bpf.insn(0x07, 2, imm=-16) + bpf.mov(3, 16) + bpf.call(bpf.BPF_BIND)
        with attached((connect, own + bpf.returns(1))):
            s = sock(kind, family)
            s.connect(at)
            seen["bpf_bind()"] = s.getsockname()[0], there.accept()[1] == s.getsockname()
    return seen


def names(kind, family, first):
    own, other = (bpf.SOCKNAME, bpf.PEERNAME) if family == V4 else (bpf.SOCKNAME6, bpf.PEERNAME6)
    there = sock(kind, family)
    there.bind((B if family == V4 else B6, 0))
    there.listen()
    s = in_a(kind, family)
    s.connect(there.getsockname())
    port = lambda n: bpf.mov(2, bpf.be16(n)) + bpf.store(1, bpf.USER_PORT, 2) + bpf.returns(1)
    with attached((own, port(11)), (other, port(22))):
        t, peer_ = there.accept()
        return {
            "getsockname()": t.getsockname()[1],
            "getpeername()": t.getpeername()[1],
            "accept()'s address": peer_[1],
            "getsockname() of a listener": there.getsockname()[1],
        }


def closing(kind, family, first):
    made, closed = bpf.Counter(), bpf.Counter()
    there = peer(kind, family)
    with attached((bpf.SOCK_CREATE, made.program()), (bpf.SOCK_RELEASE, closed.program())):
        s = sock(kind, family)
        s.connect(there.getsockname())
        s.close()
        before = closed.value()
        with attached((bpf.CONNECT if family == V4 else bpf.CONNECT6, DENY)):
            s = sock(kind, family)
            fails(s.connect, there.getsockname())
            s.close()
        # In mode AUTO connect() makes the TCP socket inside, unless it is denied before.
        each = 2 if kind == (ZRS, AUTO) else 1
        inside = each - 1
        seen = {"made and closed": (made.value() - inside, before / each, closed.value() - inside)}
    with attached((bpf.SOCK_CREATE, DENY)):
        seen["socket() denied"] = fails(sock, kind, family)
    listener = sock(kind, family)
    listener.bind((B if family == V4 else B6, 0))
    listener.listen()
    s = in_a(kind, family)
    s.connect(listener.getsockname())
    with attached((bpf.SOCK_RELEASE, closed.program())):
        before = closed.value()
        listener.accept()[0].close()
        seen["an accepted one closed"] = closed.value() - before
    return seen


def packets(kind, family, first):
    """A TCP connection whose packets are denied does not begin; its errno comes after minutes."""
    there = peer(kind, family)
    at = there.getsockname()
    host = A if family == V4 else A6
    # The other end's address, at its place in the header of a packet to it and of one from it.
    size, to, from_ = (4, 16, 12) if family == V4 else (16, 24, 8)
    raw = socket.inet_pton(family, host)[-4:]

    def denies(off):
        code = bpf.mov(2, off + size - 4) + bpf.copy(3, 10) + bpf.insn(0x07, 3, imm=-4) + bpf.mov(4, 4)
        code += bpf.mov(5, 0) + bpf.store(10, -4, 5) + bpf.call(bpf.SKB_LOAD_BYTES) + bpf.load(2, 10, -4)
        last = struct.unpack("<i", raw)[0]
        return code + bpf.insn(0xB4, 3, imm=last) + bpf.insn(0x5D, 2, 3, 2) + DENY + ALLOW

    def connects(s, at, denied=False):
        # ZRS has an answer at once, TCP and a fallback to it have none.
        if denied and kind != (ZRS, NEVER):
            s.settimeout(0.5 if kind[0] == TCP else 1)
        try:
            s.connect(at)
        except OSError:
            return False
        return True

    seen = {}
    for name, where, off, other in (("out", bpf.EGRESS, to, from_), ("in", bpf.INGRESS, from_, to)):
        with attached((where, denies(off))):
            seen[f"packets {name} denied"] = connects(sock(kind, family), at, denied=True)
        with attached((where, denies(other))):
            seen[f"packets {name} of others denied"] = connects(sock(kind, family), at)
    listener = sock(kind, family)
    listener.bind((B if family == V4 else B6, 0))
    listener.listen()
    reached = lambda denied: connects(in_a(kind, family), listener.getsockname(), denied)
    with attached((bpf.INGRESS, denies(from_))):
        seen["a listener, packets in denied"] = reached(True)
    with attached((bpf.EGRESS, denies(to))):
        seen["a listener, packets out denied"] = reached(True)
    seen["a listener, none denied"] = reached(False)
    return seen


KINDS = (("ZRS", (ZRS, NEVER)), ("ZRS and TCP", (ZRS, AUTO)))
FIRST = iter(range(7300, 9000, 20))


def compare(case, first=FIRST):
    for family, v6 in (V4, ""), (V6, ", IPv6"):
        want = case((TCP, None), family, next(first))
        for name, kind in KINDS:
            for key, value in case(kind, family, next(first)).items():
                check(f"{case.__name__}, {name}{v6}: {key}", value, want[key])


def denied_errno():
    """What a program sees at once where TCP tries again for minutes."""
    there = peer((ZRS, NEVER))
    with attached((bpf.EGRESS, DENY)):
        check("connect(): packets denied", fails(sock((ZRS, NEVER)).connect, there.getsockname()), "EPERM")


def port_by_program():
    """bpf_bind() to a port is refused to the program, and connect() goes on."""
    there = peer((ZRS, NEVER))
    own = bpf.copy(6, 1) + bpf.mov(2, V4 | bpf.be16(next(FIRST)) << 16) + bpf.store(10, -16, 2)
    own += bpf.mov(2, bpf.be32(B)) + bpf.store(10, -12, 2) + bpf.mov(2, 0) + bpf.store(10, -8, 2) + bpf.store(10, -4, 2)
    own += bpf.copy(1, 6) + bpf.copy(2, 10) + bpf.insn(0x07, 2, imm=-16) + bpf.mov(3, 16) + bpf.call(bpf.BPF_BIND)
    # -EOPNOTSUPP
    own += bpf.skip_if("==", 0, -95, 2) + DENY + ALLOW
    with attached((bpf.CONNECT, own)):
        check("bpf_bind() to a port", fails(sock((ZRS, NEVER)).connect, there.getsockname()), "no error")


def chosen_again():
    """A program that never leaves an address as it is: the inner TCP socket would have another port."""
    more = bpf.load(2, 1, bpf.USER_PORT) + bpf.host16(2) + bpf.insn(0x07, 2, imm=1) + bpf.host16(2)
    more += bpf.store(1, bpf.USER_PORT, 2) + bpf.returns(1)
    with attached((bpf.BIND, more)):
        check("two ports by one program", fails(sock((ZRS, AUTO)).bind, (B, next(FIRST))), "EADDRNOTAVAIL")


def connects_again():
    """connect() that goes on with TCP: a program gives the same address as for a TCP socket, whether ZRS was asked or not."""
    for family in (V4, V6):
        connect = bpf.CONNECT if family == V4 else bpf.CONNECT6
        there = peer((TCP, None), family, (first := next(FIRST)) + 1)
        more = bpf.load(2, 1, bpf.USER_PORT) + bpf.host16(2) + bpf.insn(0x07, 2, imm=1) + bpf.host16(2)
        more += bpf.store(1, bpf.USER_PORT, 2) + bpf.returns(1)
        for name, kind in (("TCP", (TCP, None)), ("ZRS is asked", (ZRS, AUTO)), ("ZRS is not asked", (ZRS, AUTO))):
            s = sock(kind, family)
            with attached((connect, more)):
                error = fails(s.connect, (*there.getsockname()[:1], first))
            seen = (error, error == "no error" and s.getpeername() == there.getsockname())
            check(f"connect() to the next port, {'IPv6, ' * (family == V6)}{name}", seen, ("no error", True))


bpf.join(GROUP)
try:
    compare(binding)
    compare(connecting)
    compare(names)
    compare(closing)
    compare(packets)
    compare(low_ports, iter(range(800, 900)))
    denied_errno()
    port_by_program()
    chosen_again()
    connects_again()
finally:
    bpf.join("/sys/fs/cgroup")
