#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Connections from a host that has blocks for three links, to four addresses of two hosts. Prints a line for each thing
that was looked at."""

import errno
import json
import os
import select
import socket
import subprocess
import sys
import time

sys.path.append(os.path.join(os.path.dirname(__file__), "../../lib"))
from hosts import PATIENCE, SCALE, ZRS, check, fails, host  # noqa: E402

# Second addresses: of B, and of C.
AT = {name: (ip, 7400) for name, ip in [("B", "10.77.0.2"), ("B2", "10.77.0.5"), ("C", "10.77.0.3"), ("C2", "10.77.0.4")]}
ROUNDS = 4


def listener(name):
    with host(name[0]):
        s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, ZRS)
    s.bind(AT[name])
    s.listen()
    s.settimeout(20 * PATIENCE)
    return s


def fresh():
    with host("A"):
        s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, ZRS)
    s.settimeout(None)
    return s


LISTENERS = {name: listener(name) for name in AT}
# The namespace has sockets: its links stay.
KEPT = fresh()


def meet(s, name):
    """The other end of a new connection, on which a byte went by."""
    there = LISTENERS[name].accept()[0]
    s.setblocking(True)
    s.sendall(b"x")
    there.recv(1)
    return there


def channels():
    """The channels on A's links."""
    with host("A"):
        said = subprocess.run(["zrs", "links", "--json"], capture_output=True, check=True).stdout
    return sum(link["channels"] for link in json.loads(said)["links"])


def leave(s, there):
    """Ends a connection; its link stays, unused."""
    before = channels()
    s.close()
    there.recv(1)
    there.close()
    end = time.monotonic() + 20 * PATIENCE
    while channels() >= before and time.monotonic() < end:
        time.sleep(0.05)


def connected(s, name):
    """The result of a non-blocking connect."""
    s.setblocking(False)
    begun = s.connect_ex(AT[name])
    if begun != errno.EINPROGRESS:
        return errno.errorcode.get(begun, begun)
    poll = select.poll()
    poll.register(s, select.POLLOUT)
    if not poll.poll(20_000 * PATIENCE):
        return "poll() says nothing"
    error = s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    return errno.errorcode[error] if error else "connected"


in_use = []
for name in "B", "C":
    s = fresh()
    s.connect(AT[name])
    in_use.append((s, meet(s, name)))
results = []
for turn in range(ROUNDS):
    for name in "B2", "C2":
        s = fresh()
        if turn % 2:
            results.append(connected(s, name))
        else:
            results.append(fails(s.connect, AT[name]).replace("no error", "connected"))
        if results[-1] == "connected":
            leave(s, meet(s, name))
        # The peer takes its end of the last link down as well.
        time.sleep(0.3 * SCALE)
check("connects that need the blocks of an unused link", results, ["connected"] * 2 * ROUNDS)
third = fresh()
third.connect(AT["B2"])
third_there = meet(third, "B2")
begun = time.monotonic()
s = fresh()
check("where all links are in use, there is no room", fails(s.connect, AT["C2"]), "ENOMEM")
check("and that is known at once", time.monotonic() - begun < 5 * SCALE, True)
for conn, there in in_use:
    conn.sendall(b"y")
    check("they are still in use", there.recv(1), b"y")
leave(third, third_there)
check("the same connect, after the end of one", fails(s.connect, AT["C2"]), "no error")
