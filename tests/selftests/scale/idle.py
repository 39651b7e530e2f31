#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""idle.py N: N connections by ZRS in mode AUTO, from host A to host B, that do nothing: they have no TCP
socket inside, and take as much memory as those in mode NEVER. Prints a line for each."""

import contextlib
import os
import socket
import struct
import sys
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from hosts import host, PATIENCE

N = int(sys.argv[1])
ZRS, SOL_ZRS, ZRS_INFO, ZRS_TCP = 253, 0x5A52, 2, 3
NEVER, AUTO, BY_ZRS = 0, 1, 1
SOON = 30 * PATIENCE


def new(mode):
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, ZRS)
    s.setsockopt(SOL_ZRS, ZRS_TCP, mode)
    return s


def tcp_sockets():
    """Of the whole machine."""
    with open("/proc/net/sockstat") as f:
        words = next(line for line in f if line.startswith("TCP:")).split()
    return int(words[words.index("alloc") + 1])


def slab_bytes():
    """Objects that are in use, of all caches."""
    with open("/proc/slabinfo") as f:
        rows = [line.split() for line in f][2:]
    return sum(int(row[1]) * int(row[3]) for row in rows)


def server(mode):
    with host("B"):
        there = new(mode)
    there.bind((os.environ["ADDR_B"], 0))
    there.listen(64)
    return there


def crowd(mode, most=None):
    """The bytes of an endpoint, and TCP sockets that are there because of the crowd. What was freed may take a while
    until it is gone: waits until there are `most` bytes."""
    # A port has no more connections from one address than there are source ports.
    servers = [server(mode) for _ in range(N // 10000 + 1)]
    there = servers[0]
    with contextlib.closing(new(mode)) as first:
        first.connect(there.getsockname())
        there.accept()[0].close()
    time.sleep(1)
    sockets, slabs = tcp_sockets(), slab_bytes()
    ends = []
    for n in range(N):
        there = servers[n % len(servers)]
        s = new(mode)
        s.connect(there.getsockname())
        ends += [s, there.accept()[0]]
    assert struct.unpack_from("I", s.getsockopt(SOL_ZRS, ZRS_INFO, 256), 112)[0] == BY_ZRS
    # It is given back by the kernel's thread.
    late = time.monotonic() + SOON
    while tcp_sockets() > sockets and time.monotonic() < late:
        time.sleep(0.1)
    time.sleep(1)
    each = lambda: (slab_bytes() - slabs) / len(ends)
    while most is not None and each() > most and time.monotonic() < late:
        time.sleep(0.1)
    result = each(), tcp_sockets() - sockets
    for s in ends:
        s.close()
    for there in servers:
        there.close()
    time.sleep(1)
    return result


def check(name, good, text):
    print(f"{'ok' if good else 'not ok'} - {name}: {text}", flush=True)


never, _ = crowd(NEVER)
most = 1.05 * never + 512
auto, inner = crowd(AUTO, most)
check(f"{N} idle connections in mode AUTO have no TCP socket inside", inner <= 0, inner)
check("an endpoint takes as much memory as in mode NEVER", auto <= most, f"{auto:.0f} bytes, {never:.0f} in mode NEVER")
