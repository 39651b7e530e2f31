#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Each option of a datagram socket beside UDP's in the same host: setsockopt() with many values and lengths, and after
each of them getsockopt(). Both sockets must give the same result, errno, value and length, but for the options in OTHER
and REFUSED: the former cannot be the same; ZRS cannot honour the latter, and refuses each value of theirs.

  options.py [--udp] [LEVEL...]       prints a line for each level, and one for each option that is as it must not be

--udp: the sockets of ZRS have a UDP socket inside, which has almost all options of REFUSED.
"""

import ctypes
import errno
import os
import socket
import struct
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from hosts import check, datagram, UDP, ZRS

V4, V6 = socket.AF_INET, socket.AF_INET6
SOL, IP, IPV6, SOL_UDP, TCP, RAW = socket.SOL_SOCKET, 0, 41, 17, 6, 255
A, B, A6 = os.environ["ADDR_A"], os.environ["ADDR_B"], os.environ["ADDR6_A"]
libc = ctypes.CDLL(None, use_errno=True)
LEVELS = (("SOL_SOCKET", SOL, range(0, 95)), ("SOL_IP", IP, range(0, 65)), ("SOL_UDP", SOL_UDP, range(0, 110)),
          ("SOL_IPV6", IPV6, range(0, 82)), ("SOL_TCP", TCP, range(1, 4)), ("SOL_RAW", RAW, range(0, 3)))
NUMBERS = (1, 0, -1, 2, 3, 88, 255, 256, 1500, 65535, 65536, 1 << 20, -1 << 31)
LENGTHS = (0, 1, 2, 3, 4, 5, 8, 16, 64, 600)

# By level and option: what it reads as. Its other calls are compared with UDP's.
OTHER = {
    (SOL, 38): "SO_PROTOCOL",
    (SOL, 57): "SO_COOKIE, a number of the socket",
}

# Why ZRS does not have an option.
MULTICAST = "nothing but UDP has multicast"
PACKETS = "a datagram of ZRS is not a packet of IP, and takes the way that its link has"
ADDRESS = "a link is made from an address of this host, and not from any"
# By level and option: the reason, and the errno.
REFUSED = {
    (SOL, 51): ("SO_ATTACH_REUSEPORT_CBPF: a hash chooses the socket", "ENOPROTOOPT"),
    (SOL, 52): ("SO_ATTACH_REUSEPORT_EBPF: the same", "ENOPROTOOPT"),
    (SOL, 37): ("SO_TIMESTAMPING: no times of sending are taken", "ENOPROTOOPT"),
    (SOL, 65): ("SO_TIMESTAMPING_NEW: the same", "ENOPROTOOPT"),
    (SOL, 61): ("SO_TXTIME: a datagram is sent at once", "ENOPROTOOPT"),
    **{(IP, n): (why, "ENOPROTOOPT") for why, names in (
        # IP_OPTIONS, IP_MTU, IP_IPSEC_POLICY, IP_XFRM_POLICY, IP_PASSSEC, IP_CHECKSUM, IP_UNICAST_IF
        (PACKETS, (4, 14, 16, 17, 18, 23, 50)),
        # IP_FREEBIND, IP_TRANSPARENT
        (ADDRESS, (15, 19)),
        # IP_MULTICAST_IF, _TTL, _LOOP, memberships and filters of sources, MCAST_*, IP_MULTICAST_ALL
        (MULTICAST, (*range(32, 50),)),
    ) for n in names},
    # UDP_ENCAP
    (SOL_UDP, 100): ("the kernel's tunnels use UDP", "ENOPROTOOPT"),
    **{(IPV6, n): (why, "ENOPROTOOPT") for why, names in (
        # IPV6_ADDRFORM
        ("a socket keeps its family", (1,)),
        # IPV6_2292PKTOPTIONS, IPV6_FLOWINFO, IPV6_MTU, IPV6_FLOWLABEL_MGR, IPV6_FLOWINFO_SEND, IPV6_IPSEC_POLICY, IPV6_XFRM_POLICY,
        # IPV6_HOPOPTS, IPV6_RTHDRDSTOPTS, IPV6_RTHDR, IPV6_DSTOPTS, IPV6_PATHMTU, IPV6_AUTOFLOWLABEL,
        # IPV6_ADDR_PREFERENCES, IPV6_UNICAST_IF
        (PACKETS, (6, 11, 24, 32, 33, 34, 35, 54, 55, 57, 59, 61, 70, 72, 76)),
        # IPV6_PKTINFO, IPV6_TRANSPARENT, IPV6_FREEBIND
        (ADDRESS, (50, 75, 78)),
        # IPV6_MULTICAST_*, IPV6_JOIN_GROUP, IPV6_LEAVE_GROUP, IPV6_JOIN_ANYCAST, IPV6_LEAVE_ANYCAST, MCAST_*
        (MULTICAST, (17, 18, 19, 20, 21, 27, 28, 29, *range(42, 49))),
    ) for n in names},
}
# Those that a kernel without CONFIG_XFRM does not have.
XFRM = {(IP, 16), (IP, 17), (IPV6, 34), (IPV6, 35)}
# Of these a socket with a UDP socket inside has none either.
ALWAYS_REFUSED = {(SOL, 51), (SOL, 52), (IPV6, 1)}


def answer(n):
    return n if n >= 0 else errno.errorcode[ctypes.get_errno()]


def put(s, level, name, value, length):
    return answer(libc.setsockopt(s.fileno(), level, name, value, length))


def get(s, level, name, length, value=None):
    """The result, or the length and as many bytes as were written; `value`: in place of the program's memory."""
    room = ctypes.create_string_buffer(b"\xa5" * 640, 640)
    size = ctypes.c_int(length)
    n = answer(libc.getsockopt(s.fileno(), level, name, value or room, ctypes.byref(size)))
    if n != 0:
        return n
    return size.value, room.raw[:max(size.value, len(room.raw.rstrip(b"\xa5")))]


def reads(s, level, name):
    """getsockopt() with all lengths, a negative one, and without memory for the value and for the length."""
    seen = {f"read, {n} bytes": get(s, level, name, n) for n in (*LENGTHS, -1)}
    seen["read, no memory"] = get(s, level, name, 4, ctypes.c_void_p(4096))
    seen["read, no length"] = answer(libc.getsockopt(s.fileno(), level, name, None, ctypes.c_void_p(4096)))
    return seen


def values(family, level):
    """The values that are set: numbers, and the structures of these options."""
    yield from (struct.pack("i", n) for n in NUMBERS)
    yield from (b"\1" + bytes(n - 1) for n in LENGTHS if n not in (0, 4))
    if level == SOL:
        yield from (struct.pack("qq", 1, 5), struct.pack("qq", 1, 1000000), struct.pack("qq", -1, 0), b"lo\0", b"none\0")
    ours, group = socket.inet_aton(A), socket.inet_aton("239.1.2.3")
    if level == IP:
        yield from (ours, group + ours, group + ours + bytes(4), socket.inet_aton(B), group + bytes(4),
                    group + ours + socket.inet_aton(B))
    group6 = socket.inet_pton(V6, "ff05::1234")
    if level == IPV6:
        yield from (group6 + bytes(4), socket.inet_pton(V6, A6) + bytes(4))
    if level in (IP, IPV6):
        to = struct.pack("=HH4s", V4, 0, group) if family == V4 else struct.pack("=HHI16sI", V6, 0, 0, group6, 0)
        yield struct.pack("I4x", 0) + to.ljust(128, b"\0")


def look(make, family, level, name):
    """The answers of an option: of a fresh socket, to each value and after it, and at the end."""
    with make() as s:
        seen = {f"fresh, {key}": value for key, value in reads(s, level, name).items()}
        for value in values(family, level):
            key = f"{value[:24].hex()} of {len(value)}"
            seen[f"set {key}"] = put(s, level, name, value, len(value))
            seen[f"read after {key}"] = get(s, level, name, 600)
        for key, value, length in (("no length", b"\1\0\0\0", 0), ("a negative length", b"\1\0\0\0", -1),
                                   ("no memory", ctypes.c_void_p(4096), 4)):
            seen[f"set, {key}"] = put(s, level, name, value, length)
            seen[f"read after {key}"] = get(s, level, name, 600)
        seen |= {f"at the end, {key}": value for key, value in reads(s, level, name).items()}
        return seen


def difference(ours, theirs):
    """The first one, or nothing."""
    for key, value in theirs.items():
        if ours[key] != value:
            return f"{key}: {ours[key]}, UDP {value}"[:400]
    return None


def wrong_refusal(level, name, ours, theirs):
    """What is wrong with the answers of an option in REFUSED, or nothing."""
    if not difference(ours, theirs):
        return None if (level, name) in XFRM else "refused as UDP does: it needs no exception"
    error = REFUSED[level, name][1]
    for key, value in ours.items():
        allowed = {error}
        if key.startswith("set"):
            # As UDP does, before it looks at the name.
            if level == SOL_UDP or (
                    key in ("set, a negative length", "set, no memory") and value == theirs[key]):
                allowed |= {value} & {"EINVAL", "EFAULT"}
        elif level == SOL:
            # The kernel reads them, where it can: as if nothing had been set.
            how = "read, 600 bytes" if "after" in key else key.split(", ", 1)[1]
            allowed.add(theirs[f"fresh, {how}"])
        elif key.endswith(("-1 bytes", "no length")):
            allowed |= {value} & {"EINVAL", "EFAULT"}
        if value not in allowed:
            return f"{key}: {value}, not {error}"[:400]
    return None


def wrong_other(name, ours, theirs):
    """What is wrong with the answers of an option in OTHER, or nothing."""
    if name == 38:
        ours = {key: value for key, value in ours.items() if not isinstance(value, tuple)}
        return difference({**theirs, **ours}, theirs)
    cookies = {value[1][:8] for seen in (ours, theirs) for value in seen.values() if isinstance(value, tuple) and value[0]}
    return None if len(cookies) == 2 else f"{len(cookies)} cookies of two sockets"


def main():
    beside = "--udp" in sys.argv
    wanted = [arg for arg in sys.argv[1:] if arg != "--udp"]
    for family in V4, V6:
        def make(proto):
            return lambda: datagram("A", None, proto, family, beside and proto == ZRS)

        with make(ZRS)() as s:
            check(f"{family.name}: SO_PROTOCOL", s.getsockopt(SOL, socket.SO_PROTOCOL), ZRS)
        for text, level, names in LEVELS:
            if wanted and text not in wanted:
                continue
            same = refused = 0
            wrong = []
            for name in names:
                ours, theirs = (look(make(proto), family, level, name) for proto in (ZRS, UDP))
                is_refused = (level, name) in REFUSED and not (family == V4 and level == IPV6)
                if beside:
                    is_refused = is_refused and (level, name) in ALWAYS_REFUSED
                if (level, name) in OTHER:
                    bad = wrong_other(name, ours, theirs)
                elif is_refused and not (beside and level == IPV6):
                    bad = wrong_refusal(level, name, ours, theirs)
                    refused += 1
                elif is_refused:
                    # UDP inside answers what it can read.
                    bad = next((f"{key}: {value}" for key, value in ours.items()
                                if key.startswith("set ") and value != "ENOPROTOOPT"), None)
                    refused += 1
                else:
                    bad = difference(ours, theirs)
                    same += 1
                if bad:
                    wrong.append(name)
                    print(f"not ok - {family.name}, {text} {name}: {bad}", flush=True)
            check(f"{family.name}, {text}: {same} options as UDP's, {refused} refused", wrong, [])


main()
