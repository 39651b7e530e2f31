#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Each state of a connection when the peer closes, and when it resets: what poll() says, and what each
call returns, the first time and the second, on a TCP socket and on one of ZRS. Both ends are in this
host. bind() is left out: with TCP it succeeds on a connection that was reset, and leads nowhere, for
connect() and listen() fail then.

Prints a line for each state and end.
"""

import errno
import os
import select
import socket
import struct
import sys
import threading
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from hosts import PATIENCE, becomes, check

TCP, ZRS = 6, 253
SOL_ZRS, ZRS_TCP, NEVER = 0x5A52, 3, 0
SOL, HERE = socket.SOL_SOCKET, os.environ["ADDR_A"]
SOON = 20 * PATIENCE
# Of the pauses after which nothing comes any more.
pauses = 1
NOSIGNAL = socket.MSG_NOSIGNAL
EVENTS = select.POLLIN | select.POLLOUT | select.POLLRDHUP | select.POLLPRI


def new(proto):
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, proto)
    if proto == ZRS:
        s.setsockopt(SOL_ZRS, ZRS_TCP, NEVER)
    return s


def pair(proto):
    """The end that is looked at, and its peer."""
    with new(proto) as there:
        there.bind((HERE, 0))
        there.listen(1)
        s = new(proto)
        s.connect(there.getsockname())
        return s, there.accept()[0]


def polled(s, ms=0):
    poll = select.poll()
    poll.register(s, EVENTS)
    seen = poll.poll(ms)
    return seen[0][1] if seen else 0


def fill(s, t):
    """Until no room comes for a while."""
    s.setblocking(False)
    late = time.monotonic() + 0.1 * PATIENCE * pauses
    while time.monotonic() < late:
        try:
            s.send(bytes(65536), NOSIGNAL)
            late = time.monotonic() + 0.1 * PATIENCE * pauses
        except BlockingIOError:
            time.sleep(0.01)
    s.setblocking(True)


def says(s, t):
    t.sendall(b"four")
    becomes(lambda: bool(polled(s) & select.POLLIN), True)


def says_and_part_is_read(s, t):
    says(s, t)
    s.recv(1)


def peer_shuts(s, t):
    t.shutdown(socket.SHUT_WR)
    becomes(lambda: bool(polled(s) & select.POLLRDHUP), True)


def peer_says_and_shuts(s, t):
    says(s, t)
    peer_shuts(s, t)


def end_is_read(s, t):
    peer_shuts(s, t)
    s.recv(1)


def both_shut(s, t):
    peer_shuts(s, t)
    s.shutdown(socket.SHUT_WR)


STATES = {
    "connected": lambda s, t: None,
    "data waits": says,
    "data waits, a part read": says_and_part_is_read,
    "no room to send": fill,
    "reading shut": lambda s, t: s.shutdown(socket.SHUT_RD),
    "writing shut": lambda s, t: s.shutdown(socket.SHUT_WR),
    "both shut": lambda s, t: s.shutdown(socket.SHUT_RDWR),
    "the peer's writing shut": peer_shuts,
    "data waits, the peer's writing shut": peer_says_and_shuts,
    "the peer's end read": end_is_read,
    "both ends' writing shut": both_shut,
}


def closes(s, t):
    t.close()


def unread(s, t):
    """The peer closes, and has not read what it was sent."""
    try:
        s.send(b"x", NOSIGNAL | socket.MSG_DONTWAIT)
        becomes(lambda: bool(polled(t) & select.POLLIN), True)
    except OSError:
        pass
    t.close()


def aborts(s, t):
    t.setsockopt(SOL, socket.SO_LINGER, struct.pack("ii", 1, 0))
    t.close()


ENDS = {"closes": closes, "closes with data unread": unread, "aborts": aborts}


def result(call):
    """What a call returns, or its errno; addresses are not compared."""
    try:
        value = call()
    except OSError as e:
        return errno.errorcode[e.errno]
    return "an address" if isinstance(value, tuple) else value


CALLS = {
    "recv()": lambda s: s.recv(9),
    "recv(MSG_PEEK)": lambda s: s.recv(9, socket.MSG_PEEK),
    "recv(MSG_WAITALL)": lambda s: s.recv(9, socket.MSG_WAITALL),
    "send()": lambda s: s.send(b"y", NOSIGNAL | socket.MSG_DONTWAIT),
    "send() of nothing": lambda s: s.send(b"", NOSIGNAL),
    "shutdown(SHUT_RD)": lambda s: s.shutdown(socket.SHUT_RD),
    "shutdown(SHUT_WR)": lambda s: s.shutdown(socket.SHUT_WR),
    "shutdown(SHUT_RDWR)": lambda s: s.shutdown(socket.SHUT_RDWR),
    "getpeername()": lambda s: s.getpeername(),
    "getsockname()": lambda s: s.getsockname(),
    "SO_ERROR": lambda s: s.getsockopt(SOL, socket.SO_ERROR),
    "connect()": lambda s: s.connect((HERE, 1)),
    "listen()": lambda s: s.listen(1),
    "accept()": lambda s: s.accept(),
}


def ended(proto, state, end, want):
    """A connection in that state whose peer has ended so, and its events before and after; waits for those of
    `want`, if that is known."""
    s, t = pair(proto)
    s.settimeout(None)
    STATES[state](s, t)
    before = polled(s)
    ENDS[end](s, t)
    return s, (before, later(s, (want or (None, None))[1], before))


def later(s, want, before=None):
    """Its events when they are those of `want`. If that is not known, or is what they were before, nothing tells
    when the end has arrived."""
    if want is None or before == want:
        time.sleep(0.05 * PATIENCE * pauses)
        return polled(s)
    return becomes(lambda: polled(s), want)


# The events after send(), which are not compared.
ANSWERED = "poll() after send()"


def look(find, want={}):
    """What each call returns on a socket that `find` gives with its events, which become those of `want`."""
    seen = {}
    for name, call in CALLS.items():
        s, seen[f"poll() before {name}"] = find(want.get(f"poll() before {name}"))
        if not (polled(s) & select.POLLIN) and name.startswith("recv"):
            # It would wait.
            s.setblocking(False)
        seen[name] = result(lambda: call(s))
        if name == "send()":
            # The answer to it may be a reset, whose events tell that it has come.
            time.sleep(0.03 * PATIENCE * pauses)
            late = time.monotonic() + PATIENCE
            while want and polled(s) != want[ANSWERED] and time.monotonic() < late:
                time.sleep(0.01)
            seen[ANSWERED] = polled(s)
        if not (polled(s) & select.POLLIN):
            s.setblocking(False)
        seen[f"{name}, again"] = result(lambda: call(s))
        seen[f"{name}, then SO_ERROR"] = s.getsockopt(SOL, socket.SO_ERROR)
        s.close()
    return seen


def says_and_closes(s, t):
    t.sendall(b"four")
    t.close()


def says_and_aborts(s, t):
    t.sendall(b"four")
    aborts(s, t)


QUEUED = {"closes": closes, "aborts": aborts, "says something and closes": says_and_closes,
          "says something and aborts": says_and_aborts}


def queued(proto, end):
    """A listener whose one connection has ended before accept()."""
    there = new(proto)
    there.bind((HERE, 0))
    there.listen(1)
    t = new(proto)
    t.connect(there.getsockname())
    becomes(lambda: polled(there), select.POLLIN)
    end(None, t)
    there.settimeout(SOON)
    return there


def listens(proto, end):
    """The listener's own answers."""
    with queued(proto, end) as there:
        # The listener does not tell when the end has arrived.
        time.sleep(0.05 * PATIENCE * pauses)
        there.setblocking(False)
        seen = {"poll()": polled(there), "accept()": result(there.accept), "poll(), then": polled(there)}
        seen["accept(), again"] = result(there.accept)
        seen["SO_ERROR"] = there.getsockopt(SOL, socket.SO_ERROR)
        return seen


def accepted(proto, end, want=None):
    with queued(proto, end) as there:
        s = there.accept()[0]
        return s, later(s, want)


def connecting(proto):
    """Sockets that connect to a listener whose backlog is full, when that is closed: what one call on each says."""
    there = new(proto)
    there.bind((HERE, 0))
    there.listen(0)
    first = new(proto)
    first.connect(there.getsockname())
    to, seen, waiting = there.getsockname(), {}, {}
    for name, call in {
        "SO_ERROR": CALLS["SO_ERROR"], "connect()": lambda s: s.connect(to), "recv()": CALLS["recv()"],
        "send()": CALLS["send()"], "getpeername()": CALLS["getpeername()"], "shutdown()": CALLS["shutdown(SHUT_RDWR)"],
    }.items():
        s = waiting[name] = new(proto)
        s.setblocking(False)
        seen[f"before {name}"] = (result(lambda: s.connect(to)), polled(s))
        seen[name] = call
    there.close()
    for name, s in waiting.items():
        events = polled(s, SOON * 1000)
        call = seen[name]
        seen[name] = (events, result(lambda: call(s)), polled(s), s.getsockopt(SOL, socket.SO_ERROR))
    return seen


def waiting(proto, call, full, end):
    """A call that waits when the peer ends."""
    s, t = pair(proto)
    if full:
        fill(s, t)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(result(lambda: call(s))), daemon=True)
    thread.start()
    time.sleep(0.3 * pauses)
    ENDS[end](s, t)
    thread.join(SOON)
    seen += [s.getsockopt(SOL, socket.SO_ERROR)]
    s.close()
    return seen


WAITING = {
    "recv()": (lambda s: s.recv(9), False),
    "recv(MSG_WAITALL)": (lambda s: s.recv(9, socket.MSG_WAITALL), False),
    "send()": (lambda s: s.sendall(bytes(1 << 20)), True),
    "poll()": (lambda s: polled(s, SOON * 1000), True),
}

def different(want, seen):
    """TCP's answers that ZRS does not give, and what ZRS gives."""
    return {key: (value, seen[key]) for key, value in want.items() if key != ANSWERED and seen[key] != value}


def compare(name, answers):
    """Checks that `answers` of ZRS are those of TCP. A pause may have been too short on a busy machine: what differs
    differs with longer ones, too."""
    global pauses
    if wrong := different(*answers()):
        pauses = 10
        wrong = different(*answers())
        pauses = 1
    check(name, wrong, {})


def looks(find):
    """What TCP answers, and ZRS; `find` takes the protocol and the events."""
    want = look(lambda events: find(TCP, events))
    return want, look(lambda events: find(ZRS, events), want)


for state in STATES:
    for end in ENDS:
        compare(f"{state}, the peer {end}: other answers than TCP's",
                lambda: looks(lambda proto, events: ended(proto, state, end, events)))
for name, end in QUEUED.items():
    compare(f"a listener, the queued peer {name}: other answers than TCP's", lambda: (listens(TCP, end), listens(ZRS, end)))
    compare(f"accepted after the peer {name}: other answers than TCP's",
            lambda: looks(lambda proto, events: accepted(proto, end, events)))
compare("connecting, the listener closes: other answers than TCP's", lambda: (connecting(TCP), connecting(ZRS)))
for name, (call, full) in WAITING.items():
    for end in ENDS:
        compare(f"{name} waits, the peer {end}: other answers than TCP's",
                lambda: ({name: waiting(TCP, call, full, end)}, {name: waiting(ZRS, call, full, end)}))
