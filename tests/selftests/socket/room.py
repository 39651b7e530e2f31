#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Non-blocking sends on one of many connections that share a link, after poll() has said OUT, while the peer is cut off.
Prints a line for each thing that was looked at."""

import os
import re
import select
import socket
import subprocess
import sys
import threading
import time

sys.path.append(os.path.join(os.path.dirname(__file__), "../../lib"))
from hosts import PATIENCE, ZRS, becomes, check, fails, host, skip  # noqa: E402

# What data leaves to control messages, of slots and of credit.
RESERVE = 8
DONTWAIT, OUT = socket.MSG_DONTWAIT, select.POLLOUT
BULK = 100_000
# Less than the peer takes of a connection without a window.
SOME = 40_000


def link():
    """What debugfs says of the link of this side."""
    with open("/sys/kernel/debug/zrs/links") as file:
        for line in file:
            if "Up accepted=false" in line:
                return dict(re.findall(r"(\w+)=(\S+)", line))
    raise RuntimeError("no link")


def left():
    """Messages that this side may still send, and the peer may take."""
    now = link()
    return min(int(now["credit"]), int(now["slots"].split("/")[0]))


def port(state):
    subprocess.run(["bridge", "-n", "zrsL", "link", "set", "dev", "lb", "state", str(state)], check=True)


def writable(s):
    poll = select.poll()
    poll.register(s, OUT)
    return bool(poll.poll(0))


class Pairs:
    """Connections of one link."""

    def __init__(self):
        with host("B"):
            self.listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, ZRS)
            self.listener.bind((os.environ["ADDR"], 0))
            self.listener.listen(64)

    def make(self, count):
        made = []
        for _ in range(count):
            with host("A"):
                here = socket.socket(socket.AF_INET, socket.SOCK_STREAM, ZRS)
            here.connect(self.listener.getsockname())
            there = self.listener.accept()[0]
            there.settimeout(20 * PATIENCE)
            made.append((here, there))
        return made


def read(there, count):
    got = b""
    while len(got) < count:
        got += there.recv(count - len(got))
    return got


def control_messages():
    """Control messages use what they may beside the data that poll() has promised room for."""
    pairs = Pairs()
    senders, others = pairs.make(16), pairs.make(RESERVE - 2)
    sent = [0] * len(senders)
    time.sleep(0.5)
    port(0)
    at = 0
    while left() > RESERVE + 1:
        at = (at + 1) % len(senders)
        sent[at] += senders[at][0].send(b"x", DONTWAIT)
    at = 0
    check("there is room for a message", writable(senders[at][0]), True)
    before = left()
    others[0][0].shutdown(socket.SHUT_WR)
    check("a control message has used some of what there is", left() < before, True)
    result = fails(senders[at][0].send, b"x", DONTWAIT)
    check("the promised message is taken", result, "no error")
    sent[at] += result == "no error"
    for here, _ in others[1:]:
        here.shutdown(socket.SHUT_WR)
    check("control messages go on", left() < before - len(others), True)
    vain = 0
    for at, (here, _) in enumerate(senders):
        while not vain and writable(here):
            if fails(here.send, b"x", DONTWAIT) == "no error":
                sent[at] += 1
            else:
                vain += 1
    check("sends in vain, after poll()", vain, 0)
    check("and the peer's last receive is no one's", int(link()["credit"]) >= 1, True)
    port(3)
    for at, (_, there) in enumerate(senders):
        read(there, sent[at])
    check("every byte has arrived", True, True)
    check("and every end", [there.recv(1) for _, there in others], [b""] * len(others))
    check("there is room again", becomes(lambda: all(writable(here) for here, _ in senders), True), True)


def bulk_data():
    """Other connections use all the room for bulk data."""
    pairs = Pairs()
    others, (mine,) = pairs.make(6), pairs.make(1)
    data = os.urandom(BULK)
    for here, there in others + [mine]:
        # From then on they have windows.
        for _ in range(3):
            here.sendall(data[:SOME])
            read(there, SOME)
    time.sleep(0.5)
    port(0)
    sent, moved = [0] * len(others), True
    while moved:
        moved = False
        for at, (here, _) in enumerate(others):
            try:
                sent[at] += here.send(bytes(1 << 20), DONTWAIT)
                moved = True
            except BlockingIOError:
                pass
    here, there = mine
    used, most = map(int, link()["bulk"].split("/"))
    # With a quarter of it free, a chunk would go.
    full = most - used < most // 4
    if not full:
        skip("a send beside bulk data", f"{used} of {most} bytes are used, as some have no window")
        port(3)
        return
    check("beside bulk data there is room for a message", writable(here), True)
    try:
        part = here.send(data, DONTWAIT)
    except BlockingIOError:
        part = 0
    check("of more bytes, a part is taken", 0 < part < BULK, True)
    check("then poll() says nothing", writable(here), False)
    check("and the next send takes none", fails(here.send, data, DONTWAIT), "EAGAIN")
    port(3)
    for at, (_, other) in enumerate(others):
        read(other, sent[at])
    got = read(there, part)
    check("there is room again", becomes(lambda: writable(here), True), True)
    rest = threading.Thread(target=here.sendall, args=(data[part:],), daemon=True)
    rest.start()
    check("the bytes arrive in their order", got + read(there, BULK - part) == data, True)
    rest.join()


def accepted():
    """The first send on connections that were accepted as soon as they were there."""
    pairs = Pairs()
    listener, vain = pairs.listener, 0
    listener.setblocking(False)
    for _ in range(100):
        with host("A"):
            here = socket.socket(socket.AF_INET, socket.SOCK_STREAM, ZRS)
        here.setblocking(False)
        here.connect_ex(listener.getsockname())
        while True:
            try:
                there = listener.accept()[0]
                break
            except BlockingIOError:
                pass
        if fails(there.send, b"x", DONTWAIT) != "no error":
            vain += 1
    check("first sends in vain, after accept()", vain, 0)


control_messages()
if sys.argv[1] == "slots":
    bulk_data()
    accepted()
