#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""A non-blocking read of bytes that lie there, while another process peeks at them all the time. Prints a line for
each thing that was looked at."""

import os
import select
import signal
import socket
import sys
import time

sys.path.append(os.path.join(os.path.dirname(__file__), "../../lib"))
from hosts import PATIENCE, check  # noqa: E402

NAMES = {6: "TCP", 253: "ZRS"}
# A peek copies all of it, so that it has the turn for most of the time.
SIZE = 60_000
TURNS = 2000


def pair(proto):
    at = socket.socket(socket.AF_INET, socket.SOCK_STREAM, proto)
    at.bind((os.environ["ADDR_B"], 0))
    at.listen()
    here = socket.socket(socket.AF_INET, socket.SOCK_STREAM, proto)
    here.connect(at.getsockname())
    return here, at.accept()[0]


def peeker(s):
    """A process that peeks for as long as it lives."""
    pid = os.fork()
    if pid == 0:
        while True:
            s.recv(SIZE, socket.MSG_PEEK)
    return pid


def all_there(s):
    late = time.monotonic() + 20 * PATIENCE
    while len(s.recv(SIZE, socket.MSG_PEEK)) < SIZE and time.monotonic() < late:
        time.sleep(0.01)


def turns(s):
    """How many of the non-blocking reads after poll() had no bytes."""
    poll = select.poll()
    poll.register(s, select.POLLIN)
    vain = 0
    for _ in range(TURNS):
        if not poll.poll(1000 * PATIENCE):
            return "poll() says nothing"
        try:
            s.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            vain += 1
    return vain


def drained(s):
    """The bytes that one reads who goes on until there are none: none is left behind."""
    got = 0
    while got < SIZE:
        try:
            got += len(s.recv(SIZE // 50, socket.MSG_DONTWAIT))
        except BlockingIOError:
            break
    return got


for proto, name in NAMES.items():
    writer, reader = pair(proto)
    writer.sendall(bytes(SIZE))
    all_there(reader)
    other = peeker(reader)
    check(f"{name}: reads after poll() that got nothing", turns(reader), 0)
    check(f"{name}: all is read before a read would wait", drained(reader), SIZE)
    os.kill(other, signal.SIGKILL)
    os.waitpid(other, 0)
