#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The sockets that a program gets which makes its own system calls, as programs in Go do.

  nolibc.py zrs|tcp     prints a line for each
  nolibc.py             the same for each word that it reads, and then "end"
"""

import ctypes
import os
import platform
import socket
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
import uring

IPPROTO_MPTCP = 262
SYS_SOCKET = {"x86_64": 41, "aarch64": 198, "riscv64": 198}[platform.machine()]
STREAM, DGRAM = socket.SOCK_STREAM, socket.SOCK_DGRAM
V4, V6 = socket.AF_INET, socket.AF_INET6
WANT = {"zrs": 253, "tcp": 6}
libc = ctypes.CDLL(None, use_errno=True)


def protocol(family, kind, asked):
    fd = libc.syscall(SYS_SOCKET, family, kind, asked)
    if fd < 0:
        return os.strerror(ctypes.get_errno())
    with socket.socket(fileno=fd) as s:
        flags = os.get_inheritable(fd), os.get_blocking(fd)
        wanted = not kind & socket.SOCK_CLOEXEC, not kind & socket.SOCK_NONBLOCK
        return s.getsockopt(socket.SOL_SOCKET, socket.SO_PROTOCOL) if flags == wanted else f"flags {flags}"


def look(carrier):
    want = WANT[carrier]

    def check(name, seen, want):
        print(f"{'ok' if seen == want else 'not ok'} - {carrier}, uid {os.getuid()}: {name}: {seen}", flush=True)

    for family, v6 in (V4, ""), (V6, ", IPv6"):
        check(f"protocol 0{v6}", protocol(family, STREAM | socket.SOCK_CLOEXEC, 0), want)
        check(f"TCP{v6}", protocol(family, STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, 6), want)
        check(f"MPTCP, of Go's listeners{v6}", protocol(family, STREAM, IPPROTO_MPTCP), 253 if want == 253 else IPPROTO_MPTCP)
    # Of the system calls that make sockets, the one that neither way sees.
    with socket.socket(fileno=uring.Ring().ask(uring.SOCKET, V4, STREAM)) as s:
        check("a socket that io_uring makes stays TCP", s.getsockopt(socket.SOL_SOCKET, socket.SO_PROTOCOL), 6)
    check("UDP stays", protocol(V4, DGRAM, 0), 17)
    check("a Unix socket stays", protocol(socket.AF_UNIX, STREAM, 0), 0)


if sys.argv[1:]:
    look(sys.argv[1])
else:
    for line in sys.stdin:
        look(line.strip())
        print("end", flush=True)
