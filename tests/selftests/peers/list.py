#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The lists of peers of hosts A and B, and sockets of A that connect to B."""

import os
import socket
import subprocess
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tcp"))
from connect import A, AUTO, B, B6, BY_TCP, BY_ZRS, NEVER, REQUIRED, ZRS, carrier, check, fails, host, new
from hosts import becomes

PEER = 11
A6 = os.environ["ADDR6_A"]


def peers(where, *lines):
    with host(where):
        subprocess.run(["zrs", "peers", "flush"], check=True)
        for line in lines:
            subprocess.run(["zrs", "peers", *line.split()], check=True, stderr=subprocess.DEVNULL)


def counts():
    said = subprocess.run(["zrs", "peers", "list", "--counts"], check=True, capture_output=True, text=True).stdout
    words = said.strip().splitlines()[-1].replace(",", "").split()
    return {name: int(words[words.index(name) + 1]) for name in ("refused", "for")} | {"there": int(words[-1])}


def more(before):
    return {name: count - before[name] for name, count in counts().items() if count != before[name]}


def server(at):
    with host("B"):
        s = new(AUTO, socket.AF_INET6 if ":" in at else socket.AF_INET)
        s.bind((at, 0))
        s.listen(64)
    return s


def to(s, mode):
    c = new(mode, s.family)
    c.connect(s.getsockname()[:2])
    return c


def answer(s, mode):
    """The carrier and the reason, or the error."""
    seen = []
    failed = fails(lambda: seen.append(carrier(to(s, mode))))
    return seen[0] if seen else failed


def own_list(v4, v6):
    """The list of the host that connects."""
    for line in ("deny any", f"deny {B} {B6}", "deny 10.77.0.0/16 fd77::/64"):
        peers("A", line)
        for s in (v4, v6):
            before = counts()
            for mode in (NEVER, REQUIRED):
                check(f"A: {line}, mode {mode}", answer(s, mode), "EACCES")
            check(f"A: {line}, mode AUTO", answer(s, AUTO), (BY_TCP, PEER))
            check("no link was asked for", becomes(lambda: more(before), {"for": 3}), {"for": 3})
    peers("A", "deny 10.77.0.0/16", f"allow {B}")
    check("A: the longer network allows", answer(v4, AUTO), (BY_ZRS, 0))
    peers("A", f"deny {B}", "allow any", "allow 10.77.0.0/24")
    check("A: the longer network denies", answer(v4, NEVER), "EACCES")
    check("and the other family is allowed", answer(v6, NEVER), (BY_ZRS, 0))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, ZRS) as d:
        check("a datagram to a host that is denied", fails(d.sendto, b"x", (B, 7009)), "EACCES")
    peers("A")
    check("A: without a list", answer(v4, AUTO), (BY_ZRS, 0))


def other_list(v4, v6):
    """The list of the host that listens."""
    for s, own in ((v4, A), (v6, A6)):
        live = to(s, NEVER)
        there, _ = s.accept()
        check("a connection", carrier(live), (BY_ZRS, 0))
        before = counts()
        peers("B", f"deny {own}")
        check("ends when its peer is denied", fails(live.recv, 1), "ECONNRESET")
        check("at both ends", fails(there.recv, 1), "ECONNRESET")
        for mode in (NEVER, REQUIRED):
            check(f"B: deny {own}, mode {mode}", answer(s, mode), "EACCES")
        check(f"B: deny {own}, mode AUTO", answer(s, AUTO), (BY_TCP, PEER))
        want = {"refused": 3, "there": 3}
        check("counted at both ends", becomes(lambda: more(before), want), want)
        peers("B", "deny any", f"allow {own}")
        check(f"B: allow {own} of all", answer(s, NEVER), (BY_ZRS, 0))
        peers("B", f"allow {own}")
    peers("B")


def main():
    own_list(server(B), server(B6))
    other_list(server(B), server(B6))


main()
