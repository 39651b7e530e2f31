#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Sockets of host A that connect to B, and servers of A, with ZRS off in the namespace or for their groups."""

import os
import socket
import subprocess
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tcp"))
from connect import A, AUTO, B, BY_TCP, BY_ZRS, NEVER, REQUIRED, ZRS, carrier, check, fails, host, new

OFF, PEER = 12, 11


def net(where, *words):
    with host(where):
        subprocess.run(["zrs", "net", *words], check=True)


def server(mode=AUTO, at=B, where="B"):
    with host(where):
        s = new(mode)
    s.bind((at, 0))
    s.listen()
    return s


def to(s, mode):
    c = new(mode)
    c.connect(s.getsockname())
    return carrier(c)


def result(call, *args):
    seen = []
    failed = fails(lambda: seen.append(call(*args)))
    return seen[0] if seen else failed


def datagram():
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM, ZRS).close()
    return "made"


def all_of(name, there, on):
    """What sockets of A get."""
    check(f"{name}: connect(), AUTO", result(to, there, AUTO), (BY_ZRS, 0) if on else (BY_TCP, OFF))
    for mode in (NEVER, REQUIRED):
        check(f"{name}: connect(), mode {mode}", result(to, there, mode), (BY_ZRS, 0) if on else "EACCES")
        made = result(lambda: server(mode, A, "A") and "listens")
        check(f"{name}: bind() and listen(), mode {mode}", made, "listens" if on else "EACCES")
    s = new()
    s.bind((A, 0))
    check(f"{name}: bind(), AUTO", carrier(s)[1], 0 if on else OFF)
    s = new()
    s.listen()
    check(f"{name}: listen(), AUTO", carrier(s)[1], 0 if on else OFF)
    check(f"{name}: a datagram socket", result(datagram), "made" if on else "EACCES")


def as_groups(gid, groups, call, *args):
    os.setgroups(groups)
    os.setegid(gid)
    try:
        return call(*args)
    finally:
        os.setegid(0)
        os.setgroups([])


def main():
    there = server()
    all_of("on", there, True)
    net("A", "off")
    all_of("off", there, False)
    net("A", "on")
    all_of("on again", there, True)

    net("A", "groups", "100", "200")
    all_of("root is in no such group", there, False)
    for name, gid, groups, on in (
        ("the group", 100, [], True),
        ("the last one", 200, [], True),
        ("one further", 201, [99], False),
        ("another of its groups", 1000, [5, 150], True),
    ):
        as_groups(gid, groups, all_of, name, there, on)
    net("A", "groups", "all")

    # The other host: off for its peers, too.
    live = new(NEVER)
    live.connect(there.getsockname())
    subprocess.run(["zrs", "peers", "flush"], check=True)
    net("B", "off")
    check("the connection that there is", live.send(b"x"), 1)
    with host("B"):
        # Ends the links that there are.
        subprocess.run(["zrs", "peers", "flush"], check=True)
    check("until its link ends", fails(live.recv, 1), "ECONNRESET")
    check("off there", result(to, there, NEVER), "EACCES")
    check("off there, AUTO", result(to, there, AUTO), (BY_TCP, PEER))
    net("B", "on")
    check("on there", result(to, there, NEVER), (BY_ZRS, 0))


main()
