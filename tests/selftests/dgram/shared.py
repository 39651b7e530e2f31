#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Sockets in hosts A and B. For each line of stdin, A or B, that host sends some datagrams to the other;
the answer is the number of bytes that have arrived.
"""

import os
import socket
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from hosts import host, PATIENCE

ADDRESSES = {"A": os.environ["ADDR_A"], "B": os.environ["ADDR_B"]}


def sock(name):
    with host(name):
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 253)
    s.settimeout(20 * PATIENCE)
    s.bind((ADDRESSES[name], 0))
    return s


socks = {name: sock(name) for name in ADDRESSES}
print("ready", flush=True)
for line in sys.stdin:
    s, far = socks[line.strip()], socks["B" if line.strip() == "A" else "A"]
    got = 0
    for n in range(100):
        for size in (0, 100, 4096, 20000, 65507) if n % 20 == 0 else (100,):
            s.sendto(bytes(size), far.getsockname())
            got += len(far.recv(70000))
    print(got, flush=True)
