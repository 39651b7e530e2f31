#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""What a socket does after its peer is gone: each way of going, then each order of calls, over ZRS, over
TCP, and on a socket of ours that TCP carries, with the same results. Prints a line for each."""

import errno
import os
import select
import socket
import struct
import time

TCP, ZRS, CARRIED = 6, 253, "ZRS, carried by TCP"
SOL = socket.SOL_SOCKET
SOL_ZRS, ZRS_INFO, ZRS_TCP, ONLY, CLOSED = 0x5A52, 2, 3, 3, 0
# How much longer than usual things that must happen may take.
PATIENCE = int(os.environ.get("TIME_SCALE", 1)) * int(os.environ.get("LIMIT_SCALE", 1))
SOON = 5000 * PATIENCE  # of milliseconds
ABORT = struct.pack("ii", 1, 0)


def check(name, seen, want):
    if seen == want:
        print(f"ok - {name}", flush=True)
    else:
        print(f"not ok - {name}: over TCP {want}, here {seen}", flush=True)


def listener(proto, at=(os.environ["ADDR_B"], 0), reuse=False):
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, proto)
    if reuse:
        s.setsockopt(SOL, socket.SO_REUSEADDR, 1)
    s.bind(at)
    s.listen()
    return s


def pair(proto):
    there = listener(TCP if proto == CARRIED else proto)
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, ZRS if proto == CARRIED else proto)
    if proto == CARRIED:
        s.setsockopt(SOL_ZRS, ZRS_TCP, ONLY)
    s.connect(there.getsockname())
    return s, there.accept()[0]


# How the peer goes: it does something, and what poll() says of the socket then, at the latest.
def closes(s, peer):
    peer.close()


def says_and_closes(s, peer):
    peer.sendall(b"bye")
    peer.close()


def ends_its_direction(s, peer):
    peer.shutdown(socket.SHUT_WR)


def leaves_unread(s, peer):
    s.sendall(b"x")
    waits(peer, select.POLLIN)
    peer.close()


def aborts(s, peer):
    peer.setsockopt(SOL, socket.SO_LINGER, ABORT)
    peer.close()


def ends_then_closes(s, peer):
    """No event tells of the close."""
    peer.shutdown(socket.SHUT_WR)
    waits(s, select.POLLRDHUP)
    by_zrs = is_zrs(peer)
    peer.close()
    late = time.monotonic() + 20 * PATIENCE
    while by_zrs and state(s) != CLOSED and time.monotonic() < late:
        time.sleep(0.01)


def is_zrs(s):
    return s.getsockopt(SOL, socket.SO_PROTOCOL) == ZRS


def state(s):
    return struct.unpack("I", s.getsockopt(SOL_ZRS, ZRS_INFO, 4))[0]


def waits(s, events, ms=20000 * PATIENCE):
    poll = select.poll()
    poll.register(s, events)
    return poll.poll(ms)


# The calls. What the peer answers to a send comes with a hang-up, if it is told of at all.
def result(call, *args):
    try:
        r = call(*args)
    except OSError as e:
        return errno.errorcode[e.errno]
    return "ok" if r is None else r


def send(s, gone):
    r = result(s.send, b"lost")
    if gone:
        waits(s, 0, SOON)
    return r


CALLS = {
    "send": send,
    "large send": lambda s, gone: "sent" if (r := result(s.send, bytes(50000))) == 50000 and (not gone or waits(s, 0, SOON)) else r,
    "empty send": lambda s, _: result(s.send, b""),
    "recv": lambda s, _: result(s.recv, 100),
    "error": lambda s, _: s.getsockopt(SOL, socket.SO_ERROR),
    "peer": lambda s, _: "ok" if type(r := result(s.getpeername)) is tuple else r,
    "name": lambda s, _: "ok" if type(r := result(s.getsockname)) is tuple else r,
    "shut": lambda s, _: result(s.shutdown, socket.SHUT_WR),
    "shut both": lambda s, _: result(s.shutdown, socket.SHUT_RDWR),
    "poll": lambda s, _: polled(s),
}
ORDERS = (
    ("peer", "poll", "recv", "poll", "send", "poll", "send", "peer", "send", "poll"),
    ("send", "poll", "peer", "recv", "recv", "send", "send", "recv"),
    ("empty send", "send", "error", "poll", "error", "send", "recv", "peer", "name"),
    ("large send", "recv", "recv", "large send", "send", "shut", "poll"),
    ("recv", "recv", "shut", "peer", "poll", "send", "shut"),
    ("shut both", "recv", "recv", "send", "peer", "poll"),
    ("send", "shut", "shut both", "error", "recv"),
)
WAYS = (
    (closes, select.POLLRDHUP, True),
    (says_and_closes, select.POLLRDHUP, True),
    (ends_its_direction, select.POLLRDHUP, False),
    (leaves_unread, select.POLLHUP, True),
    (aborts, select.POLLHUP, True),
    (ends_then_closes, select.POLLRDHUP, True),
)


def polled(s):
    poll = select.poll()
    poll.register(s, select.POLLIN | select.POLLOUT | select.POLLRDHUP)
    return poll.poll(0)[0][1] if poll.poll(0) else 0


def seen(proto, way, event, gone, order):
    s, peer = pair(proto)
    s.settimeout(20 * PATIENCE)
    way(s, peer)
    waits(s, event)
    return [(call, CALLS[call](s, gone)) for call in order]


def accepted_late(proto, way):
    """The peer goes before its connection is accepted: accept() gives it, with the peer's address."""
    there = listener(proto)
    peer = socket.socket(socket.AF_INET, socket.SOCK_STREAM, proto)
    peer.connect(there.getsockname())
    at = peer.getsockname()
    way(None, peer)
    time.sleep(0.1)
    s = there.accept()
    waits(s[0], select.POLLRDHUP)
    return s[1] == at, polled(s[0]), result(s[0].getpeername) == at, result(s[0].recv, 10)


def started_again(proto, closes_first, reuse):
    """A server that is stopped with a connection, and started again at its address."""
    there = listener(proto, reuse=reuse)
    at = there.getsockname()
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, proto)
    s.connect(at)
    t = there.accept()[0]
    there.close()
    for one in (t, s) if closes_first else (s, t):
        one.close()
    return result(lambda: listener(proto, at, reuse).close())


for way, event, gone in WAYS:
    for order in ORDERS:
        if "large send" in order and not gone:
            continue
        over_tcp = seen(TCP, way, event, gone, order)
        for proto, how in (ZRS, ""), (CARRIED, ", carried"):
            name = f"the peer {way.__name__.replace('_', ' ')}{how}; {', '.join(order)}"
            check(name, seen(proto, way, event, gone, order), over_tcp)
for way in (closes, says_and_closes, ends_its_direction, aborts):
    over_tcp, over_zrs = (accepted_late(proto, way) for proto in (TCP, ZRS))
    check(f"the peer {way.__name__.replace('_', ' ')} before accept()", over_zrs, over_tcp)
for first in (True, False):
    who = "server" if first else "client"
    check(f"the {who} closes first, the server starts again", started_again(ZRS, first, True), started_again(TCP, first, True))
    check("the same without SO_REUSEADDR: at once", started_again(ZRS, first, False), "ok")
