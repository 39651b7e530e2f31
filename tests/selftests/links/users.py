#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Connects from A to many addresses of B, as several users, where a device has blocks for eight links: one of them
is root's and the peers', and of the seven others a user may have 80 percent of what is left."""

import errno
import itertools
import os
import select
import socket
import struct
import subprocess
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from hosts import PATIENCE, SOL_ZRS, ZRS, becomes, check, fails, host

ZRS_INFO, ZRS_TCP, AUTO = 2, 3, 1
BY_TCP, NO_RESOURCES = 2, 8
ONE, TWO, ROOT = 65534, 1234, 0
addresses = (f"10.77.0.{n}" for n in itertools.count(50))


def listening():
    with host("B"):
        s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, ZRS)
    s.bind(("0.0.0.0", 7000))
    s.listen(64)
    return s


def new(uid, mode=0):
    os.seteuid(uid)
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, ZRS)
    os.seteuid(0)
    if mode:
        s.setsockopt(SOL_ZRS, ZRS_TCP, mode)
    s.settimeout(20 * PATIENCE)
    return s


def connected(uid, ip):
    s = new(uid)
    s.connect((ip, 7000))
    return s


def many(uid, most):
    """Connects to one new address after the other until it fails: the sockets, and the error."""
    socks = []
    while len(socks) < most:
        failed = fails(lambda: socks.append(connected(uid, next(addresses))))
        if failed != "no error":
            return socks, failed
    return socks, "no error"


def zrs(*args):
    subprocess.run(["zrs", *args], check=True, capture_output=True)


def close(socks):
    while socks:
        socks.pop().close()


listener = listening()
one, failed = many(ONE, 8)
check("a user has six links, then it is EDQUOT", (len(one), failed), (6, "EDQUOT"))
again = []
check("a link that is there needs no other", fails(lambda: again.append(connected(ONE, one[0].getpeername()[0]))), "no error")
two, failed = many(TWO, 8)
check("another user has one", (len(two), failed), (1, "EDQUOT"))
check("and uses those of the first", fails(lambda: again.append(connected(TWO, one[1].getpeername()[0]))), "no error")
root, failed = many(ROOT, 1)
check("root has the last one", failed, "no error")

# Beside TCP: a server of TCP alone, at an address to which there is no link.
where = next(addresses)
with host("B"):
    web = socket.create_server((where, 7001))
s = new(ONE, AUTO)
s.connect((where, 7001))
by_why = struct.unpack_from("II", s.getsockopt(SOL_ZRS, ZRS_INFO, 256), 112)
check("with TCP beside ZRS it is TCP, NO_RESOURCES", by_why, (BY_TCP, NO_RESOURCES))
for each in s, web:
    each.close()

# Links without connections stay for a while, and make way for others of the same user.
close(again)
close(one)
late = lambda: fails(lambda: one.append(connected(ONE, where)))
check("a link that is not used any more makes way", becomes(late, "no error"), "no error")
close(one)
close(two)
close(root)


def links():
    said = subprocess.run(["zrs", "stats", "--json"], check=True, capture_output=True, text=True).stdout
    return int(said.split('"links":')[1].split(",")[0].split("}")[0])


# The links end with the last socket of their hosts.
listener.close()
check("all links end", becomes(links, 0), 0)
listener = listening()

# All at once: the share is used while the links are being made.
begun = []
for _ in range(7):
    s = new(ONE)
    s.setblocking(False)
    begun.append((s, fails(s.connect, (next(addresses), 7000))))
ended = []
for s, how in begun:
    if how == "EINPROGRESS":
        select.select([], [s], [], 20 * PATIENCE)
        how = errno.errorcode.get(s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), "no error")
    ended.append(how)
check(f"seven connects at once: six links: {sorted(ended)}", (ended.count("no error"), ended.count("EDQUOT")), (6, 1))
for s, _ in begun:
    s.close()
listener.close()
check("all links end", becomes(links, 0), 0)

# The share of the network namespace.
listener = listening()
zrs("set", "user_percent=100", "net_percent=25")
addresses = (f"10.77.0.{n}" for n in itertools.count(50))
one, failed = many(ONE, 8)
check("a quarter of the links for a network namespace", (len(one), failed), (2, "EDQUOT"))
two, failed = many(TWO, 8)
check("for all of its users", (len(two), failed), (0, "EDQUOT"))
root, failed = many(ROOT, 1)
check("but not for root", failed, "no error")
