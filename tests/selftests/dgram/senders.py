#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Senders that begin early, share a socket, that signals interrupt, and that SO_BINDTODEVICE binds, from host A to B.
  senders.py unmade             before the link is up
  senders.py others CUT MEND    the other cases; commands that take B off the bridge, and put it back
"""

import ctypes
import errno
import os
import select
import signal
import socket
import struct
import sys
import threading
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from hosts import PATIENCE, check, datagram, fails, meet

A, B = os.environ["ADDR_A"], os.environ["ADDR_B"]
SOL, SO_BINDTODEVICE = socket.SOL_SOCKET, 25
libc = ctypes.CDLL(None, use_errno=True)
which, *commands = sys.argv[1:]


def tx_drops(s):
    """Datagrams of the socket that its link has dropped: tx_drops of ZRS_DGRAM_INFO."""
    return struct.unpack("I", s.getsockopt(0x5A52, 17, 168)[72:76])[0]


def child(run):
    """A process that runs it, and its number."""
    pid = os.fork()
    if pid == 0:
        try:
            run()
        finally:
            os._exit(0)
    return pid


def ended(pid):
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def reader(s, told=None):
    """A process that receives, and writes to `told` after the first datagram."""
    def run():
        s.settimeout(None)
        if told is not None:
            s.recv(70000)
            os.write(told, b"1")
        while True:
            s.recv(70000)
    return child(run)


def unmade():
    """Blocking sends that begin while the link is being made: once it is up, they wait for room, and nothing is lost."""
    there, s = datagram("B", (B, 0)), datagram("A", (A, 0))
    there.setsockopt(SOL, socket.SO_RCVBUF, 4 << 20)
    up, told = os.pipe()
    pid = reader(there, told)
    s.settimeout(None)
    s.connect(there.getsockname())

    def sends(count):
        for _ in range(count):
            s.send(bytes(1000))

    # Without a pause: what has waited for the link may still be on its way.
    late = time.monotonic() + 20 * PATIENCE
    while not select.select([up], [], [], 0)[0] and time.monotonic() < late:
        sends(20)
    before = tx_drops(s)
    sends(3000)
    check("no datagram is dropped once the link is up", tx_drops(s) - before, 0)
    ended(pid)


def shared():
    """One process polls for POLLOUT while another one sends without blocking, and always has room."""
    there, s = datagram("B", (B, 0)), datagram("A", (A, 0))
    s.connect(there.getsockname())
    meet(s, there)
    pid = reader(there)
    s.setblocking(False)

    def sends():
        while True:
            try:
                s.send(b"x")
            except BlockingIOError:
                time.sleep(0.001)

    sender = child(sends)
    poll = select.poll()
    poll.register(s, select.POLLOUT)
    late, looks = 0, 0
    until = time.monotonic() + 4
    while time.monotonic() < until:
        looks += 1
        late += not poll.poll(2000 * PATIENCE)
    check("a socket that has room is polled as such while another process sends", (late, looks > 0), (0, True))
    ended(sender)
    ended(pid)


def stalled():
    """To a host that acknowledges nothing, by threads of one socket, and with a timer's signals: no call fails."""
    there, s = datagram("B", (B, 0)), datagram("A", (A, 0))
    s.connect(there.getsockname())
    meet(s, there)
    s.setsockopt(SOL, socket.SO_SNDBUF, 1)
    s.settimeout(None)
    data = bytes(60000)
    cut, mend = commands
    os.system(cut)
    seen = []

    def sends(count):
        for _ in range(count):
            ok = libc.send(s.fileno(), data, len(data), 0) == len(data)
            seen.append("sent" if ok else errno.errorcode[ctypes.get_errno()])

    threads = [threading.Thread(target=sends, args=(10,)) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(30 * PATIENCE)
    # If the link ends meanwhile, one call tells.
    told = seen.count("EHOSTUNREACH")
    check("threads that share it: each call sends, or drops", (sorted(set(seen) - {"EHOSTUNREACH"}), told <= 1), (["sent"], True))
    check("and none is held up", len(seen), 40)
    seen.clear()
    ticks = []
    signal.signal(signal.SIGALRM, lambda *_: ticks.append(1))
    signal.siginterrupt(signal.SIGALRM, False)
    signal.setitimer(signal.ITIMER_REAL, 0.003, 0.003)
    start = time.monotonic()
    sends(20)
    took = time.monotonic() - start
    signal.setitimer(signal.ITIMER_REAL, 0)
    # As above, of that link or of the next one.
    check("with a timer's signals and SA_RESTART: no EINTR", sorted(set(seen) - {"EHOSTUNREACH"}), ["sent"])
    check("and no call waits anew for each signal", (took < 5 * PATIENCE, len(ticks) > 0), (True, True))
    os.system(mend)


def bound():
    """SO_BINDTODEVICE, of the sender after its first datagram, and of the receiver."""
    there, s = datagram("B", (B, 0)), datagram("A", (A, 0))
    at = there.getsockname()
    late = time.monotonic() + 20 * PATIENCE
    there.settimeout(0.5)
    arrived = False
    # The link of the host that was cut off may have to end first.
    while not arrived and time.monotonic() < late:
        fails(lambda: s.sendto(b"first", at))
        arrived = fails(lambda: there.recv(10)) == "no error"
    check("a datagram arrives", arrived, True)
    s.setsockopt(SOL, SO_BINDTODEVICE, b"lo\0")
    check("a sender is bound to another interface", fails(s.sendto, b"no", at), "ENETUNREACH")
    s.setsockopt(SOL, SO_BINDTODEVICE, b"va\0")
    s.sendto(b"yes", at)
    there.settimeout(20 * PATIENCE)
    got = there.recv(10)
    while got == b"first":
        got = there.recv(10)
    check("and to that of the link", got, b"yes")
    there.setsockopt(SOL, SO_BINDTODEVICE, b"lo\0")
    behind = datagram("B", (B, 0))
    s.sendto(b"no", at)
    # What a link brings comes in order.
    s.sendto(b"behind it", behind.getsockname())
    behind.recv(10)
    there.setsockopt(SOL, SO_BINDTODEVICE, b"vb\0")
    s.sendto(b"yes", at)
    check("a receiver gets none of another interface", there.recv(10), b"yes")


for case in (unmade,) if which == "unmade" else (shared, stalled, bound):
    case()
