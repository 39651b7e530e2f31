#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""datagrams.py GROUP: what BPF programs of a control group do to datagrams, UDP's and ours; in host B.

Each case runs with a UDP socket, which says what is right, with a socket of ZRS and with one that has UDP
inside. Prints a line for each thing it looked at.
"""

import os
import select
import socket
import struct
import sys

import bpf

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from hosts import becomes, by_rdma, check, datagram, fails, PATIENCE, UDP, ZRS

GROUP = sys.argv[1]
A, B = os.environ["ADDR_A"], os.environ["ADDR_B"]
A6, B6 = os.environ["ADDR6_A"], os.environ["ADDR6_B"]
V4, V6 = socket.AF_INET, socket.AF_INET6
DENY, ALLOW = bpf.returns(0), bpf.returns(1)
PLAIN, OURS, BOTH = (UDP, False), (ZRS, False), (ZRS, True)


def sock(kind, family=V4, at=None, in_="B"):
    s = datagram(in_, None, kind[0], family, beside=kind[1])
    s.settimeout(20 * PATIENCE)
    if at is not None:
        s.bind(at)
    return s


def peer(kind, family=V4, port=0):
    """In host A, outside of the control group."""
    with bpf.outside(GROUP):
        return sock(kind, family, (A if family == V4 else A6, port), "A")


def own(family, port=0):
    return (B if family == V4 else B6, port)


def attached(*programs):
    return bpf.attached(GROUP, *programs)


def to_port(port):
    return bpf.mov(2, bpf.be16(port)) + bpf.store(1, bpf.USER_PORT, 2) + bpf.returns(1)


def denies(off, raw):
    """A packet with these bytes at that place."""
    last = struct.unpack("<i", raw.ljust(4, b"\0"))[0]
    return bpf.field(off, len(raw)) + bpf.insn(0xB4, 3, imm=last) + bpf.insn(0x5D, 2, 3, 2) + DENY + ALLOW


def drops(s):
    # The last word of SO_MEMINFO.
    return struct.unpack("9I", s.getsockopt(socket.SOL_SOCKET, 55, 36))[8]


def received(s, seconds=5):
    s.settimeout(seconds * PATIENCE)
    try:
        return s.recv(100)
    except TimeoutError:
        return None


def binding(kind, family, first):
    bind, post = (bpf.BIND, bpf.POST_BIND) if family == V4 else (bpf.BIND6, bpf.POST_BIND6)
    at = lambda port: own(family, port)
    seen = {}
    s = sock(kind, family)
    with attached((bind, DENY)):
        seen["bind() denied"] = fails(s.bind, at(first))
        there = peer(kind, family)
        seen["a port that is chosen is not asked for"] = fails(sock(kind, family).sendto, b"", there.getsockname())
    with attached((bind, ALLOW)):
        seen["bind() allowed, after one that was denied"] = fails(s.bind, at(first))
    with attached((bind, DENY)):
        seen["a denied second bind()"] = fails(s.bind, at(first))
    with attached((bind, to_port(first + 1))):
        s = sock(kind, family)
        s.bind(at(0))
        seen["bind() to another port"] = s.getsockname()[1] - first
        seen["which is taken"] = fails(sock(kind, family).bind, at(first + 9))
    s = sock(kind, family)
    with attached((post, DENY)):
        seen["the port denied after bind()"] = fails(s.bind, at(first + 5))
        seen["and one that is chosen"] = fails(sock(kind, family).bind, at(0))
        seen["its name"] = s.getsockname()[1]
    seen["the port is free"] = fails(s.bind, at(first + 5))
    by_port = bpf.load(2, 1, bpf.SOCK_PORT) + bpf.skip_if("==", 2, first + 6, 2)
    with attached((post, by_port + bpf.returns(1) + DENY)):
        seen["one port denied"] = fails(sock(kind, family).bind, at(first + 6))
        seen["another one not"] = fails(sock(kind, family).bind, at(first + 7))
    return seen


def connecting(kind, family, first):
    connect = bpf.CONNECT if family == V4 else bpf.CONNECT6
    there = peer(kind, family, first)
    at = there.getsockname()
    seen = {}
    s = sock(kind, family)
    with attached((connect, DENY)):
        seen["connect() denied"] = fails(s.connect, at)
        seen["its peer"] = fails(s.getpeername)
    with attached((connect, ALLOW)):
        seen["connect() allowed after it"] = fails(s.connect, at)
    to = to_port(first)
    if family == V4:
        to = bpf.mov(2, bpf.be32(A)) + bpf.store(1, bpf.USER_IP4, 2) + to
    with attached((connect, to)):
        s = sock(kind, family)
        s.connect(("198.51.100.7", 9) if family == V4 else (A6, 9))
        s.send(b"redirected")
        seen["connect() to another address"] = received(there), s.getpeername() == at
    return seen


def sending(kind, family, first):
    sendmsg = bpf.SENDMSG if family == V4 else bpf.SENDMSG6
    there = peer(kind, family, first)
    at = there.getsockname()
    s = sock(kind, family, own(family))
    seen = {}
    with attached((sendmsg, DENY)):
        seen["sendto() denied"] = fails(s.sendto, b"1", at)
        seen["and a part of a datagram"] = fails(s.sendto, b"1", socket.MSG_MORE, at)
    s.sendto(b"2", at)
    seen["only what was allowed has come"] = received(there)
    with attached((sendmsg, to_port(first))):
        s.sendto(b"3", (*at[:1], 9))
        seen["sendto() to another port"] = received(there)
    with attached((sendmsg, to_port(0))):
        seen["sendto() without a port"] = fails(s.sendto, b"4", at)
    if family == V4:
        source = bpf.mov(2, bpf.be32("198.51.100.7")) + bpf.store(1, bpf.SOURCE_IP4, 2) + bpf.returns(1)
        with attached((sendmsg, source)):
            seen["sendto() from a foreign address"] = fails(s.sendto, b"5", at)
        source = bpf.mov(2, bpf.be32(B)) + bpf.store(1, bpf.SOURCE_IP4, 2) + bpf.returns(1)
        any_ = sock(kind)
        with attached((sendmsg, source)):
            any_.sendto(b"6", at)
            seen["sendto() from an own address"] = there.recvfrom(10)[1][0]
    s.connect(at)
    with attached((sendmsg, DENY)):
        seen["send() with a peer is not asked"] = fails(s.send, b"7"), received(there)
        seen["but sendto() is"] = fails(s.sendto, b"8", at)
    return seen


def receiving(kind, family, first):
    recvmsg = bpf.RECVMSG if family == V4 else bpf.RECVMSG6
    there, s = peer(kind, family), sock(kind, family, own(family, first))
    seen = {}
    with attached((recvmsg, to_port(11))):
        there.sendto(b"1", s.getsockname())
        data, name = s.recvfrom(10)
        seen["recvfrom() tells another port"] = data, name[1]
    counter = bpf.Counter()
    with attached((recvmsg, counter.program())):
        there.sendto(b"2", s.getsockname())
        seen["recv() does not ask"] = s.recv(10), counter.value()
    return seen


def packets(kind, family, first):
    there, s = peer(kind, family, first), sock(kind, family, own(family, first + 1))
    at = there.getsockname()
    if kind == BOTH and family == V4:
        by_rdma(s, there)
        by_rdma(there, s)
    # Addresses of source and destination, and where the header of UDP is.
    size, from_, to, udp = (4, 12, 16, 20) if family == V4 else (16, 8, 24, 40)
    host = lambda ip: socket.inet_pton(family, ip)[-4:]
    theirs, ours = host(at[0]), host(own(family)[0])
    to, from_ = to + size - 4, from_ + size - 4
    port, five = struct.pack(">H", first), struct.pack(">H", 8 + 5)
    seen = {}
    for name, code in (
        ("by address", denies(to, theirs)), ("by own address", denies(from_, ours)), ("by port", denies(udp + 2, port)),
        ("by length", denies(udp + 4, five)),
    ):
        with attached((bpf.EGRESS, code)):
            seen[f"packets out denied, {name}"] = fails(s.sendto, b"12345", at)
            s.settimeout(20 * PATIENCE)
    with attached((bpf.EGRESS, denies(to, ours))):
        seen["packets to others denied"] = fails(s.sendto, b"1", at), received(there)
    with attached((bpf.EGRESS, denies(to, theirs))):
        seen["a datagram in parts"] = fails(s.sendto, b"1", socket.MSG_MORE, at), fails(s.send, b"2")
    for name, code in (
        ("by address", denies(from_, theirs)), ("by own address", denies(to, ours)), ("by port", denies(udp, port)),
        ("by length", denies(udp + 4, five)),
    ):
        before = drops(s)
        with attached((bpf.INGRESS, code)):
            there.sendto(b"12345", s.getsockname())
            # What the UDP socket inside drops is counted there.
            inside = kind == BOTH and family == V6
            if not inside:
                becomes(lambda: drops(s) > before or bool(select.select([s], [], [], 0)[0]), True)
            seen[f"packets in denied, {name}"] = received(s, 0.1), drops(s) - before + inside
    with attached((bpf.INGRESS, denies(from_, ours))):
        there.sendto(b"6", s.getsockname())
        seen["packets in from others denied"] = received(s)
    with attached((bpf.INGRESS, denies(from_, theirs))):
        seen["packets in denied do not concern those out"] = fails(s.sendto, b"7", at), received(there)
    return seen


def low_ports(kind, family, first):
    """Without CAP_NET_BIND_SERVICE."""
    bind = bpf.BIND if family == V4 else bpf.BIND6
    read, write = os.pipe()
    with attached((bind, bpf.returns(3))):
        pid = os.fork()
        if pid == 0:
            s = sock(kind, family)
            os.setresuid(65534, 65534, 65534)
            os.write(write, fails(s.bind, own(family, first)).encode())
            os._exit(0)
        os.waitpid(pid, 0)
    return {"a low port that a program allows": os.read(read, 100).decode()}


def compare(case, first):
    for family, v6 in (V4, ""), (V6, ", IPv6"):
        want = case(PLAIN, family, next(first))
        for name, kind in (("ZRS", OURS), ("ZRS and UDP", BOTH)):
            for key, value in case(kind, family, next(first)).items():
                check(f"{case.__name__}, {name}{v6}: {key}", value, want[key])


bpf.join(GROUP)
try:
    ports = iter(range(7300, 9000, 20))
    for one in (binding, connecting, sending, receiving, packets):
        compare(one, ports)
    compare(low_ports, iter(range(800, 900)))
finally:
    bpf.join("/sys/fs/cgroup")
