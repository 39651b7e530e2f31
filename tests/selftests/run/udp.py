#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""A program that knows of UDP alone; what it sees under `zrs run --udp`.

  udp.py kinds LIBC CALLS           prints a line for each of its sockets; the protocol of those that libc
                                    makes, and of those of its own system calls: zrs or udp
  udp.py serve ADDRESS PORT         answers each datagram with the way that it came by
  udp.py ask ADDRESS PORT rdma|udp  exchanges datagrams: some way on by RDMA both ways, or all by UDP
"""

import ctypes
import os
import platform
import socket
import struct
import sys
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from hosts import check, PATIENCE

SYS_SOCKET = {"x86_64": 41, "aarch64": 198, "riscv64": 198}[platform.machine()]
SOL, DGRAM, V4, V6 = socket.SOL_SOCKET, socket.SOCK_DGRAM, socket.AF_INET, socket.AF_INET6
PROTOCOLS = {"udp": 17, "zrs": 253}
IP_RECVTTL, HOPS = 12, 33
libc = ctypes.CDLL(None, use_errno=True)


def seen_of(s):
    return (s.getsockopt(SOL, socket.SO_PROTOCOL), s.getsockopt(SOL, socket.SO_TYPE),
            os.get_inheritable(s.fileno()), os.get_blocking(s.fileno()))


def kinds(by_libc, by_calls):
    for text, want, call in (("", by_libc, libc.socket), ("by its own call: ", by_calls, None)):
        for family, v6 in (V4, ""), (V6, ", IPv6"):
            for asked in 0, 17:
                for flags in 0, socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC:
                    args = family, DGRAM | flags, asked
                    fd = call(*args) if call else libc.syscall(SYS_SOCKET, *args)
                    with socket.socket(fileno=fd) as s:
                        check(f"{text}protocol {asked}, flags {flags:#x}{v6}", seen_of(s),
                              (PROTOCOLS[want], DGRAM, not flags, not flags))
        with socket.socket(socket.AF_UNIX, DGRAM) as s:
            check(f"{text}a Unix socket stays", s.family, socket.AF_UNIX)


def open_socket():
    s = socket.socket(V4, DGRAM)
    s.settimeout(20 * PATIENCE)
    # A datagram that has come by RDMA was no packet of IP, and has another number of hops.
    s.setsockopt(0, socket.IP_TTL, HOPS)
    s.setsockopt(0, IP_RECVTTL, 1)
    return s


def receive(s):
    """A datagram, its sender, and how it came."""
    data, cmsgs, _, peer = s.recvmsg(1000, 100)
    return data, peer, b"udp" if struct.unpack("i", cmsgs[0][2])[0] == HOPS else b"rdma"


def serve(address, port):
    s = open_socket()
    s.bind((address, int(port)))
    print("listening on", port, flush=True)
    s.settimeout(None)
    while True:
        data, peer, way = receive(s)
        s.sendto(way + b" " + data, peer)


def ask(address, port, want):
    s, ways = open_socket(), []
    end = time.monotonic() + 20 * PATIENCE
    while len(ways) < 60 or want == "rdma" and ways[-1] != (b"rdma", b"rdma") and time.monotonic() < end:
        s.sendto(b"%d" % len(ways), (address, int(port)))
        data, peer, back = receive(s)
        there, number = data.split()
        assert (int(number), peer) == (len(ways), (address, int(port))), (data, peer)
        ways.append((there, back))
        time.sleep(0.02)
    check("the first goes by UDP", ways[0], (b"udp", b"udp"))
    if want == "rdma":
        check("RDMA takes over, both ways", ways[-1], (b"rdma", b"rdma"))
    else:
        check("all go by UDP", set(ways), {(b"udp", b"udp")})


{"kinds": kinds, "serve": serve, "ask": ask}[sys.argv[1]](*sys.argv[2:])
