#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Every option that a ZRS socket has, set before TCP comes to carry it, and read of the TCP socket.
A TCP socket with the same options, in the same run, says what has to be read.

  options.py        the ways of the module, in host A
  options.py swap   run by `zrs run` with no_new_privs: those of the preload library

Prints a line for each thing it looked at.
"""

import os
import socket
import struct
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from hosts import PATIENCE, check, fails, skip
from connect import AUTO, BY_TCP, NEVER, ONLY, SOL_ZRS, TCP, ZRS, ZRS_TCP, carrier, host

SOL, IP, IP6 = socket.SOL_SOCKET, socket.IPPROTO_IP, socket.IPPROTO_IPV6
V4, V6 = socket.AF_INET, socket.AF_INET6
SOON = 20 * PATIENCE


def number(n):
    return struct.pack("i", n)


TIME = struct.pack("qq", 9, 0)
# The options that ZRS sockets have themselves, but for SO_BINDTODEVICE: other than their defaults.
OWN = {
    (SOL, "SO_REUSEADDR", 2): number(1),
    (SOL, "SO_REUSEPORT", 15): number(1),
    (SOL, "SO_KEEPALIVE", 9): number(1),
    (SOL, "SO_OOBINLINE", 10): number(1),
    (SOL, "SO_DONTROUTE", 5): number(1),
    (SOL, "SO_LINGER", 13): struct.pack("ii", 1, 7),
    (SOL, "SO_PRIORITY", 12): number(3),
    (SOL, "SO_MARK", 36): number(5),
    (SOL, "SO_SNDBUF", 7): number(50000),
    (SOL, "SO_RCVBUF", 8): number(60000),
    (SOL, "SO_RCVLOWAT", 18): number(3),
    (SOL, "SO_RCVTIMEO", 20): TIME,
    (SOL, "SO_SNDTIMEO", 21): TIME,
    (SOL, "SO_BUSY_POLL", 46): number(50),
    (SOL, "SO_ZEROCOPY", 60): number(1),
    (TCP, "TCP_NODELAY", 1): number(1),
    (TCP, "TCP_MAXSEG", 2): number(1000),
    (TCP, "TCP_CORK", 3): number(1),
    (TCP, "TCP_KEEPIDLE", 4): number(77),
    (TCP, "TCP_KEEPINTVL", 5): number(11),
    (TCP, "TCP_KEEPCNT", 6): number(5),
    (TCP, "TCP_SYNCNT", 7): number(3),
    (TCP, "TCP_LINGER2", 8): number(10),
    (TCP, "TCP_DEFER_ACCEPT", 9): number(3),
    (TCP, "TCP_QUICKACK", 12): number(0),
    (TCP, "TCP_USER_TIMEOUT", 18): number(30000),
    (TCP, "TCP_FASTOPEN", 23): number(5),
    (TCP, "TCP_NOTSENT_LOWAT", 25): number(4096),
    (IP, "IP_TOS", 1): number(16),
    (IP, "IP_TTL", 2): number(33),
    (IP, "IP_MTU_DISCOVER", 10): number(3),
    (IP, "IP_BIND_ADDRESS_NO_PORT", 24): number(1),
    (IP, "IP_LOCAL_PORT_RANGE", 51): struct.pack("HH", 30000, 39999),
}
OWN6 = {
    (IP6, "IPV6_V6ONLY", 26): number(1),
    (IP6, "IPV6_UNICAST_HOPS", 16): number(34),
    (IP6, "IPV6_MTU_DISCOVER", 23): number(3),
    (IP6, "IPV6_TCLASS", 67): number(8),
}
# Some of those that the socket layer has for all sockets, or TCP alone: with the mode set first.
MORE = {
    (SOL, "SO_TIMESTAMPNS", 35): number(1),
    (SOL, "SO_MAX_PACING_RATE", 47): number(1 << 30),
    (SOL, "SO_RXQ_OVFL", 40): number(1),
    (SOL, "SO_SELECT_ERR_QUEUE", 45): number(1),
    (TCP, "TCP_CONGESTION", 13): b"reno".ljust(16, b"\0"),
    (TCP, "TCP_THIN_LINEAR_TIMEOUTS", 16): number(1),
    (TCP, "TCP_INQ", 36): number(1),
    (IP, "IP_RECVTOS", 13): number(1),
}
# Read, but not set; and the mode of ZRS.
NOT_SET = {(TCP, 11)}


def named(family):
    return OWN if family == V4 else OWN | OWN6


def all_of_them(family, more):
    return named(family) | (MORE if more else {})


def covered(family):
    """Options that a ZRS socket has and that are not in the tables above."""
    s = socket.socket(family, socket.SOCK_STREAM, ZRS)
    s.setsockopt(SOL_ZRS, ZRS_TCP, NEVER)
    known = {(level, name) for level, _, name in named(family)} | NOT_SET
    return [(level, n) for level in (TCP, IP, IP6) for n in range(256)
            if fails(s.getsockopt, level, n) == "no error" and (level, n) not in known]


def set_all(s, options):
    refused = {}
    for (level, name, n), value in options.items():
        error = fails(s.setsockopt, level, n, value)
        if error != "no error":
            refused[name] = error
    return refused


def read_all(s, options):
    seen = {}
    for level, name, n in options:
        try:
            seen[name] = s.getsockopt(level, n, 16)
        except OSError as e:
            seen[name] = e.strerror
    return seen


def compare(name, want, seen):
    other = {key: (value, seen[key]) for key, value in want.items() if seen[key] != value}
    check(f"{name}: {len(want)} options read as on TCP", other, {})


def listener(proto, family, where, mode=None, options={}):
    with host(where):
        s = socket.socket(family, socket.SOCK_STREAM, proto)
        if mode is not None:
            s.setsockopt(SOL_ZRS, ZRS_TCP, mode)
        refused = set_all(s, options)
        # The library makes a socket here.
        s.bind((os.environ["ADDR_" + where] if family == V4 else os.environ["ADDR6_" + where], 0))
    s.listen(8)
    s.settimeout(SOON)
    return s, refused


def connected(way, family, options, there):
    """What is refused of the options, and what is read once it is connected."""
    s = socket.socket(family, socket.SOCK_STREAM, TCP if way in ("TCP", "swapped") else ZRS)
    if way in ("AUTO", "AUTO, bound"):
        s.setsockopt(SOL_ZRS, ZRS_TCP, AUTO)
    if way in ("NEVER, then ONLY", "NEVER, bound, then ONLY"):
        s.setsockopt(SOL_ZRS, ZRS_TCP, NEVER)
    seen = {"refused": set_all(s, options)}
    if "bound" in way:
        s.bind((os.environ["ADDR_A"] if family == V4 else os.environ["ADDR6_A"], 0))
    name = s.getsockname()
    if "ONLY" in way:
        s.setsockopt(SOL_ZRS, ZRS_TCP, ONLY)
    s.connect(there.getsockname()[:2])
    if way == "swapped":
        check("the socket is plain TCP", s.getsockopt(SOL, socket.SO_PROTOCOL), TCP)
    elif way != "TCP":
        check(f"{way}: TCP carries it", carrier(s)[0], BY_TCP)
    if "bound" in way and "IP_BIND_ADDRESS_NO_PORT" not in (n for _, n, _ in options):
        check(f"{way}: it has its name", s.getsockname(), name)
    there.accept()
    return seen | read_all(s, options)


def accepted(proto, family, options):
    there, refused = listener(proto, family, "A", AUTO if proto == ZRS else None, options)
    with host("B"):
        c = socket.socket(family)
    c.connect(there.getsockname()[:2])
    c.sendall(b"TCP_DEFER_ACCEPT waits for it")
    s = there.accept()[0]
    check(f"accepted by protocol {proto}: a TCP socket", s.getsockopt(SOL, socket.SO_PROTOCOL), TCP)
    return {"refused": refused} | read_all(s, options)


def by_module():
    for family, name in (V4, "IPv4"), (V6, "IPv6"):
        check(f"{name}: every option of a ZRS socket is looked at", covered(family), [])
        web = listener(TCP, family, "B")[0]
        for way, more in (("AUTO", True), ("AUTO, bound", True), ("NEVER, then ONLY", False), ("NEVER, bound, then ONLY", False)):
            options = all_of_them(family, more)
            if "bound" in way:
                del options[(IP, "IP_BIND_ADDRESS_NO_PORT", 24)]
            compare(f"{name}, {way}", connected("TCP", family, options, web), connected(way, family, options, web))
        options = all_of_them(family, True)
        compare(f"{name}, accepted", accepted(TCP, family, options), accepted(ZRS, family, options))
    device = {(SOL, "SO_BINDTODEVICE", 25): b"va\0"}
    web = listener(TCP, V4, "B")[0]
    for way in "AUTO", "NEVER, then ONLY":
        compare(f"a device, {way}", connected("TCP", V4, device, web), connected(way, V4, device, web))


def by_library():
    # The library has sockets of both kinds here: none is a ZRS socket after connect().
    for family, name in (V4, "IPv4"), (V6, "IPv6"):
        web = listener(TCP, family, "B")[0]
        options = all_of_them(family, False)
        with open(sys.argv[2]) as f:
            want = eval(f.read())[name]
        compare(f"{name}, swapped", want, connected("swapped", family, options, web))


def baseline():
    seen = {}
    for family, name in (V4, "IPv4"), (V6, "IPv6"):
        seen[name] = connected("TCP", family, all_of_them(family, False), listener(TCP, family, "B")[0])
    print(seen)


if __name__ == "__main__":
    {"swap": by_library, "baseline": baseline}.get("".join(sys.argv[1:2]), by_module)()
