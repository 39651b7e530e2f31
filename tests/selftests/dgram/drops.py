#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The two places at which datagrams are dropped, from host A to host B.

  drops.py overflow    a receiver that does not read: what is missing is counted, and others go on
  drops.py stall       a peer that gives no room: no sender waits for long, nothing spins
"""

import os
import select
import socket
import struct
import sys
import time

ZRS = 253
SOL = socket.SOL_SOCKET
SO_RXQ_OVFL, SO_MEMINFO, MEMINFO_DROPS = 40, 55, 8
A, B = os.environ["ADDR_A"], os.environ["ADDR_B"]
CLONE_NEWNET = 0x40000000
SCALE = int(os.environ.get("TIME_SCALE", "1"))


def check(name, ok, seen=""):
    print(f"{'ok' if ok else 'not ok'} - {name}{'' if ok else f': {seen}'}", flush=True)


def sock(name, at, kind=socket.SOCK_DGRAM):
    with open("/proc/thread-self/ns/net") as here, open(f"/run/netns/zrs{name}") as there:
        os.setns(there.fileno(), CLONE_NEWNET)
        s = socket.socket(socket.AF_INET, kind, ZRS)
        os.setns(here.fileno(), CLONE_NEWNET)
    s.settimeout(20 * SCALE)
    s.bind((at, 0))
    return s


def drops(s):
    return struct.unpack("9I", s.getsockopt(SOL, SO_MEMINFO, 36))[MEMINFO_DROPS]


def settle(s):
    """Until nothing has arrived for a while."""
    last = None
    while last != (now := (drops(s),)):
        last = now
        time.sleep(0.3 * SCALE)


def drain(s):
    """The datagrams in its queue, and the last SO_RXQ_OVFL."""
    got, told = [], 0
    s.setblocking(False)
    while True:
        try:
            data, cmsgs, _, _ = s.recvmsg(70000, 64)
        except BlockingIOError:
            return got, told
        got.append(struct.unpack("I", data[:4])[0])
        for level, kind, value in cmsgs:
            if (level, kind) == (SOL, SO_RXQ_OVFL):
                told = struct.unpack("I", value)[0]


def overflow():
    for size in (100, 20000):
        slow, quick, s = sock("B", B), sock("B", B), sock("A", A)
        slow.setsockopt(SOL, socket.SO_RCVBUF, 50000)
        slow.setsockopt(SOL, SO_RXQ_OVFL, 1)
        s.sendto(bytes(size), slow.getsockname())
        slow.recv(70000)
        listener = sock("B", B, socket.SOCK_STREAM)
        listener.listen()
        stream = sock("A", A, socket.SOCK_STREAM)
        stream.connect(listener.getsockname())
        far, _ = listener.accept()
        far.settimeout(20 * SCALE)
        sent, others, back = 600, 0, 0
        for i in range(sent):
            s.sendto(struct.pack("I", i) + bytes(size - 4), slow.getsockname())
            if i % 100 == 0:
                s.sendto(b"beside", quick.getsockname())
                others += quick.recv(10) == b"beside"
                stream.sendall(b"stream")
                back += far.recv(10) == b"stream"
        settle(slow)
        count = drops(slow)
        got, _ = drain(slow)
        check(f"{size} bytes: sent = received + drops", sent == len(got) + count, (sent, len(got), count))
        check(f"{size} bytes: some were dropped, some not", count > 0 and len(got) > 0, (len(got), count))
        check(f"{size} bytes: the first ones are there", got == list(range(len(got))), got[:10])
        check(f"{size} bytes: another socket gets its own", others == sent // 100, others)
        check(f"{size} bytes: a stream on the link goes on", back == sent // 100, back)
        slow.setblocking(True)
        slow.settimeout(20 * SCALE)
        s.sendto(struct.pack("I", sent) + bytes(size), slow.getsockname())
        select.select([slow], [], [], 20 * SCALE)
        got, told = drain(slow)
        check(f"{size} bytes: SO_RXQ_OVFL", (got, told) == ([sent], count), (got, told, count))
        for x in (slow, quick, s, listener, stream, far):
            x.close()


def stall(cut, mend):
    """The way to B is cut: nothing is acknowledged, and no room comes."""
    there, s = sock("B", B), sock("A", A)
    at = there.getsockname()
    s.sendto(b"first", at)
    there.recv(10)
    os.system(cut)
    longest, start, n = 0, time.monotonic(), 0
    while time.monotonic() < start + 0.8:
        before = time.monotonic()
        s.sendto(bytes(1000), at)
        longest = max(longest, time.monotonic() - before)
        n += 1
    check("a blocking sender is not held up", longest < 0.4 * SCALE and n > 100, (longest, n))
    other = sock("A", A)
    other.setblocking(False)
    poll = select.poll()
    poll.register(other, select.POLLOUT)
    refused = looks = 0
    start = time.monotonic()
    while time.monotonic() < start + 0.3:
        looks += 1
        if not poll.poll(20):
            continue
        try:
            other.sendto(bytes(1000), at)
        except BlockingIOError:
            refused += 1
    check("a non-blocking one goes on, and does not spin", refused <= 20 and looks > 0, (refused, looks))
    os.system(mend)
    late = time.monotonic() + 20 * SCALE
    got = False
    while not got and time.monotonic() < late:
        s.sendto(b"again", at)
        got = any(there.recv(2000) == b"again" for _ in range(200) if select.select([there], [], [], 0.05)[0])
    check("and it arrives again when the way is mended", got)


if sys.argv[1] == "overflow":
    overflow()
else:
    stall(*sys.argv[2:])
