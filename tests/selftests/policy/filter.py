#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""filter.py: filters of datagram sockets (SO_ATTACH_FILTER, SO_ATTACH_BPF), UDP's and ours; in host B.

Each case runs with a UDP socket, which says what is right, with a socket of ZRS and with one that has UDP
inside, by RDMA (IPv4) and by UDP (IPv6). Prints a line for each thing it looked at.
"""

import ctypes
import os
import select
import socket
import struct
import sys
import time

import bpf

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from hosts import by_rdma, check, datagram, fails, PATIENCE, SOL_ZRS, UDP, ZRS, ZRS_DGRAM_UDP

A, B = os.environ["ADDR_A"], os.environ["ADDR_B"]
A6, B6 = os.environ["ADDR6_A"], os.environ["ADDR6_B"]
V4, V6, SOL = socket.AF_INET, socket.AF_INET6, socket.SOL_SOCKET
ATTACH, DETACH, LOCK, ATTACH_BPF = 26, 27, 44, 50
PLAIN, OURS, BOTH = (UDP, False), (ZRS, False), (ZRS, True)
# Classic BPF: loads of a word, two bytes and one of the packet, and of its length; jump, return.
WORD, HALF, BYTE, LENGTH, EQUAL, ODD, RETURN = 0x20, 0x28, 0x30, 0x80, 0x15, 0x45, 0x06
NET, ANCILLARY = -0x100000, -0x1000
PROTOCOL, PKTTYPE, IFINDEX = 0, 4, 8
ALL, NONE = 0xFFFFFFFF, 0
LONG = bytes(range(251)) * 79
SOCKET_FILTER = (0, 1)
FIELD = {V4: 12, V6: 8 + 12}


def keep(n):
    return [(RETURN, 0, 0, n)]


def drops_if(load, off, value, how=EQUAL):
    return [(load, 0, 0, off & ALL), (how, 0, 1, value), *keep(NONE), *keep(ALL)]


def passes_if(load, off, value):
    return [(load, 0, 0, off & ALL), (EQUAL, 0, 1, value), *keep(ALL), *keep(NONE)]


def raw(code):
    return b"".join(struct.pack("HBBI", *one) for one in code)


def attach(s, code):
    room = ctypes.create_string_buffer(raw(code), 8 * len(code))
    s.setsockopt(SOL, ATTACH, struct.pack("HxxxxxxQ", len(code), ctypes.addressof(room)))


def drops(s):
    # The last word of SO_MEMINFO.
    return struct.unpack("9I", s.getsockopt(SOL, 55, 36))[8]


def received(s, seconds=0.4):
    s.settimeout(seconds * PATIENCE)
    try:
        return s.recv(70000)
    except TimeoutError:
        return None


def all_of(s, n, dropped, patience):
    """What is received of `n` datagrams, until the others are counted as dropped, or nothing has come for a while."""
    got = []
    end = time.monotonic() + patience
    while len(got) + dropped() < n and time.monotonic() < end:
        if (one := received(s, 0.05)) is not None:
            got.append(one)
            end = time.monotonic() + patience
    return got


def pair(kind, family, first):
    there = datagram("A", (A if family == V4 else A6, first), kind[0], family, kind[1])
    s = datagram("B", (B if family == V4 else B6, first + 1), kind[0], family, kind[1])
    there.sendto(b"first", s.getsockname())
    s.recv(10)
    if kind == BOTH and family == V4:
        by_rdma(there, s)
    return there, s


def filtering(kind, family, first):
    there, s = pair(kind, family, first)
    host = lambda ip: struct.unpack(">I", socket.inet_pton(family, ip)[-4:])[0]
    seen = {}

    def run(name, code, data=(b"12345", b"", LONG)):
        attach(s, code)
        before = drops(s)
        for one in data:
            there.sendto(one, s.getsockname())
        # What the UDP socket inside drops is counted there.
        elsewhere = kind == BOTH and family == V6
        got = all_of(s, len(data), lambda: drops(s) - before, PATIENCE if elsewhere else 20 * PATIENCE)
        dropped = len(data) - len(got) if elsewhere else drops(s) - before
        # What has come are beginnings of what was sent.
        seen[name] = [len(one) for one in got], all(any(d.startswith(g) for d in data) for g in got), dropped

    run("all pass", keep(ALL))
    run("all are dropped", keep(NONE))
    run("by port", drops_if(HALF, 0, first))
    run("by another port", drops_if(HALF, 0, first + 1))
    run("by own port", drops_if(HALF, 2, first + 1))
    run("by the length in the header", drops_if(HALF, 4, 8 + 5))
    run("by the length of the packet", drops_if(LENGTH, 0, 8 + 5))
    run("by the first byte", drops_if(BYTE, 8, ord("1")))
    run("by a word", drops_if(WORD, 9, struct.unpack(">I", b"2345")[0]))
    run("by a byte far behind", passes_if(BYTE, 8 + 9000, LONG[9000]))
    run("by the last byte", passes_if(BYTE, 8 + len(LONG) - 1, LONG[-1]))
    run("by a byte that is not there", drops_if(BYTE, 8 + len(LONG), 1))
    run("by address", drops_if(WORD, NET + FIELD[family], host(there.getsockname()[0])))
    run("by another address", drops_if(WORD, NET + FIELD[family], host(s.getsockname()[0])))
    run("by the protocol", passes_if(HALF, ANCILLARY + PROTOCOL, 0x0800 if family == V4 else 0x86DD))
    run("by the kind of packet", passes_if(HALF, ANCILLARY + PKTTYPE, 0))
    run("by the interface", passes_if(HALF, ANCILLARY + IFINDEX, socket.if_nametoindex("vb")))
    for n in (1, 4, 8, 9, 8 + 3, 8 + 4096, 8 + 5000, 8 + len(LONG) - 1, 8 + len(LONG), 65535):
        run(f"{n} bytes are kept", keep(n))
    run("one of two of many", drops_if(BYTE, 8, 1, ODD), [bytes([n]) * 50 for n in range(40)])
    there.sendto(LONG, s.getsockname())
    arrives = bool(select.select([s], [], [], 20 * PATIENCE)[0])
    attach(s, keep(8 + 5000))
    there.sendto(LONG, s.getsockname())
    s.settimeout(20 * PATIENCE)
    seen["one that came before"] = arrives, len(s.recv(70000))
    room = bytearray(5)
    seen["one that is cut, its length"] = s.recv_into(room, 5, socket.MSG_PEEK | socket.MSG_TRUNC), bytes(room)
    seen["one that is cut, by a short receive"] = s.recvmsg(4999)[2], received(s)
    return seen


def options(kind, family, first):
    there, s = pair(kind, family, first)
    to = s.getsockname()

    def gets(data=b"12345"):
        there.sendto(data, to)
        return received(s, 5)

    seen = {"none is there": fails(s.setsockopt, SOL, DETACH, 0)}
    seen["a jump out of it"] = fails(attach, s, [(EQUAL, 9, 9, 0), *keep(ALL)])
    seen["of no length"] = fails(attach, s, [])
    attach(s, keep(8 + 3))
    attach(s, keep(8 + 2))
    seen["the second one replaces the first"] = gets()
    code = drops_if(BYTE, 8, 1)
    attach(s, code)
    seen["SO_GET_FILTER"] = s.getsockopt(SOL, ATTACH, 64) == raw(code)[:len(code)], fails(s.getsockopt, SOL, ATTACH, 3)
    seen["detached"] = fails(s.setsockopt, SOL, DETACH, 0), gets(b"\1"), fails(s.setsockopt, SOL, DETACH, 0)
    counter = bpf.Counter()
    fd = bpf.loaded(SOCKET_FILTER, counter.program())
    s.setsockopt(SOL, ATTACH_BPF, fd)
    os.close(fd)
    seen["eBPF, which keeps a byte of the header"] = gets(), gets(LONG), counter.value()
    seen["it cannot be read"] = fails(s.getsockopt, SOL, ATTACH, 64)
    fd = bpf.loaded(bpf.INGRESS, bpf.returns(1))
    seen["eBPF for others"] = fails(s.setsockopt, SOL, ATTACH_BPF, fd)
    os.close(fd)
    seen["eBPF that is none"] = fails(s.setsockopt, SOL, ATTACH_BPF, s.fileno()), fails(s.setsockopt, SOL, ATTACH_BPF, 999)
    # The port of the sender.
    code = bpf.field(0, 2) + bpf.skip_if("==", 2, bpf.be16(first), 2) + bpf.returns(0) + bpf.returns(ALL >> 1)
    fd = bpf.loaded(SOCKET_FILTER, code)
    s.setsockopt(SOL, ATTACH_BPF, fd)
    os.close(fd)
    other = datagram("A", (there.getsockname()[0], first + 2), kind[0], family, kind[1])
    other.sendto(b"other", to)
    seen["eBPF that looks at the port"] = received(s), gets(), gets(LONG) == LONG
    seen["locked"] = [fails(s.setsockopt, SOL, LOCK, 1), s.getsockopt(SOL, LOCK), fails(attach, s, keep(ALL)),
                      fails(s.setsockopt, SOL, DETACH, 0), fails(s.setsockopt, SOL, LOCK, 0)]
    other.sendto(b"other", to)
    seen["it is there still"] = received(s), gets()
    return seen


def before_udp(first):
    """Attached, and locked, before the socket gets its UDP socket."""
    s = datagram("B")
    attach(s, keep(8 + 2))
    s.setsockopt(SOL, LOCK, 1)
    s.setsockopt(SOL_ZRS, ZRS_DGRAM_UDP, 1)
    s.bind((B, first))
    there = datagram("A", (A, 0), UDP)
    there.sendto(b"12345", (B, first))
    check("a filter of before, by UDP", received(s, 5), b"12")
    there = datagram("A", (A, 0))
    there.sendto(b"12345", (B, first))
    check("the same by RDMA", received(s, 20), b"12")
    check("it is locked", fails(attach, s, keep(ALL)), "EPERM")
    s.close()
    s = datagram("B")
    attach(s, keep(0))
    s.setsockopt(SOL, DETACH, 0)
    s.setsockopt(SOL_ZRS, ZRS_DGRAM_UDP, 1)
    s.bind((B, first + 1))
    datagram("A", (A, 0), UDP).sendto(b"12345", (B, first + 1))
    check("one that is gone again", received(s, 5), b"12345")


def compare(case, first):
    for family, v6 in (V4, ""), (V6, ", IPv6"):
        want = case(PLAIN, family, next(first))
        for name, kind in (("ZRS", OURS), ("ZRS and UDP", BOTH)):
            for key, value in case(kind, family, next(first)).items():
                check(f"{case.__name__}, {name}{v6}: {key}", value, want[key])


ports = iter(range(7300, 9000, 20))
compare(filtering, ports)
compare(options, ports)
before_udp(next(ports))
