#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Datagrams that are dropped, and that are not, from host A to host B.

  drops.py overflow    a receiver that does not read: what is missing is counted, and others go on
  drops.py twice       a receiver that reads half as fast as the sender sends: the loss is what is counted
  drops.py unread      a stream that no program reads: datagrams of all sizes go on beside it
  drops.py stall       a peer that gives no room: no sender waits for long, nothing spins
  drops.py unmade      a link that cannot be made: what waited for it is counted
  drops.py gone        a peer that dies: connected sockets have an error, once
  drops.py device      the receiver's device goes while datagrams wait, and comes back
"""

import errno
import fcntl
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from hosts import becomes, fails, forget_errors, host, meet, PATIENCE, SCALE

ZRS, SOL_ZRS, ZRS_DGRAM_INFO = 253, 0x5A52, 17
SOL = socket.SOL_SOCKET
SO_RXQ_OVFL, SO_MEMINFO, MEMINFO_QUEUED, MEMINFO_DROPS = 40, 55, 0, 8
IP_RECVERR, IPV6_RECVERR, MSG_ERRQUEUE, ORIGIN_LOCAL = 11, 25, 0x2000, 1
A, B, C = os.environ["ADDR_A"], os.environ["ADDR_B"], os.environ["ADDR_C"]


def check(name, ok, seen=""):
    print(f"{'ok' if ok else 'not ok'} - {name}{'' if ok else f': {seen}'}", flush=True)


def sock(name, at, kind=socket.SOCK_DGRAM):
    with host(name):
        s = socket.socket(socket.AF_INET6 if ":" in at else socket.AF_INET, kind, ZRS)
    s.settimeout(20 * PATIENCE)
    s.bind((at, 0))
    return s


def meminfo(s, which):
    return struct.unpack("9I", s.getsockopt(SOL, SO_MEMINFO, 36))[which]


def drops(s):
    return meminfo(s, MEMINFO_DROPS)


def listed(name, s):
    """What `zrs ss -u` says of it."""
    rows = subprocess.check_output(["ip", "netns", "exec", f"zrs{name}", "zrs", "ss", "-ua", "--json"])
    port = f":{s.getsockname()[1]}"
    return next(row for row in json.loads(rows) if row["local"].endswith(port))


def info(s):
    """ZRS_DGRAM_INFO, by the names of `zrs ss -u`."""
    words = struct.unpack("=2I7Q6I", s.getsockopt(SOL_ZRS, ZRS_DGRAM_INFO, 168)[:88])
    names = ("tx_bytes", "rx_bytes", "tx_datagrams", "rx_datagrams", "tx_queued", "rx_queued", "rx_waiting",
             "rx_drops", "tx_drops", "error", "sndbuf", "rcvbuf")
    return dict(zip(names, words[3:]))


def settle(s, number):
    """Until that many datagrams are in the queue or counted as dropped."""
    becomes(lambda: info(s)["rx_waiting"] + drops(s), number)


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
        meet(s, slow, bytes(size))
        slow.setsockopt(SOL, socket.SO_RCVBUF, 50000)
        slow.setsockopt(SOL, SO_RXQ_OVFL, 1)
        listener = sock("B", B, socket.SOCK_STREAM)
        listener.listen()
        stream = sock("A", A, socket.SOCK_STREAM)
        stream.connect(listener.getsockname())
        far, _ = listener.accept()
        far.settimeout(20 * PATIENCE)
        sent, others, back = 600, 0, 0
        for i in range(sent):
            s.sendto(struct.pack("I", i) + bytes(size - 4), slow.getsockname())
            if i % 100 == 0:
                s.sendto(b"beside", quick.getsockname())
                others += quick.recv(10) == b"beside"
                stream.sendall(b"stream")
                back += far.recv(10) == b"stream"
        settle(slow, sent)
        count = drops(slow)
        row, queued = listed("B", slow), meminfo(slow, MEMINFO_QUEUED)
        check(f"{size} bytes: zrs ss -u has the drops", row["rx_drops"] == count, row)
        waiting = row["rx_waiting"] * (size + 256)
        check(f"{size} bytes: and the queue", row["rx_queued"] == queued == waiting > 0, (row, queued))
        told = info(slow)
        check(f"{size} bytes: and so has ZRS_DGRAM_INFO", told.items() <= row.items(), (told, row))
        row, told = listed("A", s), info(s)
        same = all(told[name] == row[name] for name in ("tx_bytes", "tx_datagrams", "tx_drops", "sndbuf"))
        check(f"{size} bytes: the sender's, too", same and told["tx_datagrams"] > sent, (told, row))
        got, _ = drain(slow)
        check(f"{size} bytes: the queue is empty then", meminfo(slow, MEMINFO_QUEUED) == 0)
        check(f"{size} bytes: sent = received + drops", sent == len(got) + count, (sent, len(got), count))
        check(f"{size} bytes: some were dropped, some not", count > 0 and len(got) > 0, (len(got), count))
        check(f"{size} bytes: the first ones are there", got == list(range(len(got))), got[:10])
        check(f"{size} bytes: another socket gets its own", others == sent // 100, others)
        check(f"{size} bytes: a stream on the link goes on", back == sent // 100, back)
        slow.setblocking(True)
        slow.settimeout(20 * PATIENCE)
        s.sendto(struct.pack("I", sent) + bytes(size), slow.getsockname())
        select.select([slow], [], [], 20 * PATIENCE)
        got, told = drain(slow)
        check(f"{size} bytes: SO_RXQ_OVFL", (got, told) == ([sent], count), (got, told, count))
        for x in (slow, quick, s, listener, stream, far):
            x.close()


def twice():
    """For each two datagrams that are sent the receiver reads one: its queue grows until it is full, and then one
    of two is lost."""
    for size, pairs in ((1024, 400), (65507, 60)):
        slow, s = sock("B", B), sock("A", A)
        s.connect(slow.getsockname())
        meet(s, slow, bytes(size))
        slow.setsockopt(SOL, socket.SO_RCVBUF, 100000)
        slow.setsockopt(SOL, SO_RXQ_OVFL, 1)
        got = []
        for n in range(pairs):
            for i in 2 * n, 2 * n + 1:
                s.send(struct.pack("I", i) + bytes(size - 4))
            got.append(struct.unpack("I", slow.recv(70000)[:4])[0])
        settle(slow, 2 * pairs - len(got))
        count = drops(slow)
        rest, told = drain(slow)
        got += rest
        lost = 2 * pairs - len(got)
        check(f"{size} bytes at twice the reader's rate: the loss is the counted drops", lost == count, (lost, count))
        check(f"{size} bytes at twice the reader's rate: some are lost", 0 < lost < pairs, (lost, pairs))
        check(f"{size} bytes at twice the reader's rate: none comes twice, or late", got == sorted(set(got)), got)
        # What was dropped before the last one that was read.
        missing = got[-1] + 1 - len(got)
        check(f"{size} bytes at twice the reader's rate: SO_RXQ_OVFL", told == missing, (told, missing))
        slow.close(), s.close()


def unread():
    """Small messages of a stream stay in blocks that the link's credit is for."""
    there, s, listener, stream = sock("B", B), sock("A", A), sock("B", B, socket.SOCK_STREAM), sock("A", A, socket.SOCK_STREAM)
    listener.listen()
    stream.connect(listener.getsockname())
    far, _ = listener.accept()
    meet(s, there)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    waiting = lambda: struct.unpack("i", fcntl.ioctl(far, termios.FIONREAD, bytes(4)))[0]
    # A channel takes 64.
    for n in range(1, 61):
        stream.send(b"x" * 100)
        becomes(waiting, 100 * n)
    check("messages wait", waiting() == 6000, waiting())
    s.connect(there.getsockname())
    for size, number in (100, 200), (5000, 50), (65507, 20), (100, 1), (65507, 20), (4096, 100):
        got = 0
        for n in range(number):
            s.send(bytes([n % 251]) * size)
            if not select.select([there], [], [], 8 * PATIENCE)[0] or there.recv(70000) != bytes([n % 251]) * size:
                break
            got += 1
        check(f"{number} of {size} bytes arrive", got == number, got)
        # The others would only take long.
        if got < number:
            break
    row = listed("A", s)
    check("none is dropped", (row["tx_drops"], drops(there)) == (0, 0), row)
    far.settimeout(20 * PATIENCE)
    check("and the stream is whole", far.recv(6000, socket.MSG_WAITALL) == b"x" * 6000)
    s.send(bytes(65507))
    check("and a datagram arrives", len(there.recv(70000)) == 65507)


def beside(s, dead, far):
    """Sends to a host that does not answer and to `far` in turns: how long the longest send to `far` takes,
    how many arrive there, and how many were sent to the other."""
    longest, lost, reached = 0, 0, 0
    for n in range(50):
        try:
            s.sendto(bytes(1000), dead)
            lost += 1
        except BlockingIOError:
            pass
        before = time.monotonic()
        s.sendto(b"%d" % n, far.getsockname())
        longest = max(longest, time.monotonic() - before)
        reached += far.recv(10) == b"%d" % n
    return longest, reached, lost


def several(cut, mend):
    """The way to B is cut while a socket that sends to C as well sends large datagrams there."""
    there, far, s = sock("B", B), sock("C", C), sock("A", A)
    for end in there, far:
        meet(s, end)
    s.setblocking(True)
    cutter = threading.Timer(0.2 * SCALE, os.system, (cut,))
    cutter.start()
    longest, late = 0, None
    while late is None or time.monotonic() < late:
        before = time.monotonic()
        s.sendto(bytes(40000), there.getsockname())
        longest = max(longest, time.monotonic() - before)
        if late is None and not cutter.is_alive():
            late = time.monotonic() + 0.5 * SCALE
    # The link lasts for 30 s.
    check("a host that is lost in a large datagram does not hold up the others", longest < 5, longest)
    os.system(mend)


def drops_of_links():
    """Datagrams that the links of A have dropped."""
    links = subprocess.check_output(["ip", "netns", "exec", "zrsA", "zrs", "links", "--json"])
    return sum(link["dgram_drops"] for link in json.loads(links)["links"])


def stall(cut, mend):
    """The way to B is cut: nothing is acknowledged, and no room comes."""
    there, far, s, both = sock("B", B), sock("C", C), sock("A", A), sock("A", A)
    at = there.getsockname()
    for end in there, far:
        meet(s, end)
    # What was lost before there was a link, and with it.
    ours, theirs, linked = listed("A", s)["tx_drops"], drops(there), drops_of_links()
    os.system(cut)
    small = sock("A", A)
    small.setblocking(False)
    small.setsockopt(SOL, socket.SO_SNDBUF, 0)
    limit, charge = small.getsockopt(SOL, socket.SO_SNDBUF), 1000 + 256
    most = -(-limit // charge)
    total = 0

    def fill():
        for i in range(100):
            try:
                small.sendto(bytes(1000), at)
            except BlockingIOError:
                return i
        return 100

    # After dgram_stall_ms it does not count any more, which a busy machine may reach in the middle.
    for _ in range(20):
        count = fill()
        queued = struct.unpack("i", fcntl.ioctl(small, termios.TIOCOUTQ, bytes(4)))[0]
        total += count
        if (count, queued) == (most, most * charge):
            break
        time.sleep(0.1)
    check("SO_SNDBUF bounds what is in flight", count == most, (count, most, limit))
    check("SIOCOUTQ", queued == most * charge, queued)
    poll = select.poll()
    poll.register(small, select.POLLOUT)
    # The link lasts for 30 s, however slow the machine is.
    check("it is writable again in time", poll.poll(8000))
    signals = []
    signal.signal(signal.SIGIO, lambda *_: signals.append(1))
    fcntl.fcntl(small, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(small, fcntl.F_SETFL, fcntl.fcntl(small, fcntl.F_GETFL) | os.O_ASYNC)
    count = fill()
    total += count
    check("and may send as much again", count == most, (count, most))
    late = time.monotonic() + 8
    while not signals and time.monotonic() < late:
        time.sleep(0.01)
    check("SIGIO when there is room", len(signals) > 0)
    fcntl.fcntl(small, fcntl.F_SETFL, fcntl.fcntl(small, fcntl.F_GETFL) & ~os.O_ASYNC)
    # On a busy machine any call may take long.
    s.setblocking(True)
    rounds = []
    for _ in range(6):
        longest, start, n = 0, time.monotonic(), 0
        while time.monotonic() < start + 0.8:
            before = time.monotonic()
            s.sendto(bytes(1000), at)
            longest = max(longest, time.monotonic() - before)
            n += 1
        total += n
        rounds.append((longest, n))
        if longest < 0.4 * SCALE and n > 100:
            break
    fine = longest < 0.4 * SCALE and n > 100 and all(longest < 8 for longest, _ in rounds)
    check("a blocking sender is not held up", fine, rounds)
    s.settimeout(20 * PATIENCE)
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
            total += 1
        except BlockingIOError:
            refused += 1
    check("a non-blocking one goes on, and does not spin", refused <= 20 and looks > 0, (refused, looks))
    for blocking in True, False:
        both.setblocking(blocking)
        name = "a blocking" if blocking else "a non-blocking"
        # On a busy machine any call may take long.
        for _ in range(10):
            longest, reached, lost = beside(both, at, far)
            total += lost
            if longest < 0.4 * SCALE:
                break
        check(f"{name} socket sends to another host in time", longest < 0.4 * SCALE, longest)
        check(f"{name} socket: all of that arrive", reached == 50, reached)
    os.system(mend)
    late = time.monotonic() + 20 * PATIENCE
    got, received = False, 0
    while not got and time.monotonic() < late:
        s.sendto(b"again", at)
        total += 1
        while not got and select.select([there], [], [], 0.5)[0]:
            got = there.recv(2000) == b"again"
            received += 1
    check("and it arrives again when the way is mended", got)
    late, lost, theirs_now = time.monotonic() + 20 * PATIENCE, 0, 0
    while received + lost < total and time.monotonic() < late:
        while select.select([there], [], [], 0.5)[0]:
            there.recv(2000)
            received += 1
        theirs_now = drops(there) - theirs
        lost = sum(listed("A", x)["tx_drops"] for x in (s, small, other, both)) - ours + theirs_now
    check("sent = received + drops", received + lost == total and lost > 0, (total, received, lost))
    of_links = drops_of_links() - linked
    check("the link has counted its drops", of_links == lost - theirs_now, (of_links, lost))


def error_of(s):
    return errno.errorcode.get(s.getsockopt(SOL, socket.SO_ERROR), "none")


def unmade():
    """No link can be made to a host without a socket of ZRS. What waits for one is counted, whether other
    datagrams take its place, or the link fails."""
    for number, size in ((5, 100), (5, 30000), (300, 0)):
        connected, free = sock("A", A), sock("A", A)
        connected.connect((C, 9))
        for s in connected, free:
            s.setblocking(False)
        for _ in range(number):
            free.sendto(bytes(size), (C, 9))
        sent = 0
        poll = select.poll()
        poll.register(connected, 0)
        try:
            connected.send(bytes(size))
            sent += 1
        except ConnectionRefusedError:
            pass
        else:
            heard = bool(poll.poll(20000 * PATIENCE)) and error_of(connected)
            check(f"{number} of {size} bytes: a connected socket hears of it", heard == "ECONNREFUSED", heard)
        late = time.monotonic() + 20 * PATIENCE
        while (counts := [listed("A", x)["tx_drops"] for x in (free, connected)]) != [number, sent]:
            if time.monotonic() > late:
                break
            time.sleep(0.05)
        check(f"{number} of {size} bytes: all are counted", counts == [number, sent], counts)
        check(f"{number} of {size} bytes: the other has no error", error_of(free) == "none")
        connected.close(), free.close()


def told(s):
    """What the error queue has: the destination, errno, origin, type and code."""
    # With a time limit, Python waits.
    s.setblocking(False)
    try:
        _, cmsgs, _, name = s.recvmsg(10, 512, MSG_ERRQUEUE)
    except OSError as e:
        return errno.errorcode[e.errno]
    return name, *struct.unpack_from("IBBB", cmsgs[0][2])


def gone(cut, mend):
    """B dies, and the link to it fails when the device gives up."""
    there, far = sock("B", B), sock("C", C)
    at = there.getsockname()
    connected, silent, elsewhere, free, away, quiet = (sock("A", A) for _ in range(6))
    there6, free6 = sock("B", os.environ["ADDR6_B"]), sock("A", os.environ["ADDR6_A"])
    free6.setsockopt(socket.IPPROTO_IPV6, IPV6_RECVERR, 1)
    at6 = there6.getsockname()
    connected.connect(at), silent.connect((B, 9)), elsewhere.connect(far.getsockname())
    for s in silent, free, away:
        s.setsockopt(socket.IPPROTO_IP, IP_RECVERR, 1)
    for s, end in ((connected, there), (free, there), (away, there), (quiet, there), (away, far), (elsewhere, far),
                   (free6, there6)):
        meet(s, end)
    for s in connected, silent, free, away, free6:
        forget_errors(s)
    os.system(cut)
    connected.send(b"lost"), free.sendto(b"lost", at), quiet.sendto(b"lost", at), free6.sendto(b"lost", at6)
    poll = select.poll()
    for s in connected, silent, free, free6:
        # Without events it waits for the error alone.
        poll.register(s, 0)
        check("a connected socket hears of it, and one with IP_RECVERR", poll.poll(60000 * PATIENCE))
        poll.unregister(s)
    errors = [[error_of(s) for s in (connected, silent, free, elsewhere, away, quiet)] for _ in range(2)]
    check("EHOSTUNREACH, if it is connected to that host", errors[0] == ["EHOSTUNREACH"] * 2 + ["none"] * 4, errors)
    check("once", errors[1] == ["none"] * 6, errors)
    for name, s in ("connected", connected), ("unconnected", free):
        s.setblocking(False)
        check(f"the {name} one has nothing to receive", fails(s.recv, 10) == "EAGAIN")
    for name, s, to in ("without a peer", free, at), ("that is connected", silent, (B, 9)), ("of IPv6", free6, at6):
        entry = told(s)
        want = (to, errno.EHOSTUNREACH, ORIGIN_LOCAL, 0, 0)
        check(f"on the error queue of one {name}: where to, and why", entry == want, entry)
    for name, s in (("that has it no more", free), ("of IPv6 that has it no more", free6),
                    ("without IP_RECVERR", connected), ("without both", quiet), ("whose last datagram went elsewhere", away)):
        check(f"none for one {name}", told(s) == "EAGAIN")
    elsewhere.send(b"beside")
    check("another host is reached", far.recv(10) == b"beside")
    os.system(mend)
    late, got = time.monotonic() + 90 * PATIENCE, False
    while not got and time.monotonic() < late:
        fails(free.sendto, b"again", at)
        while not got and select.select([there], [], [], 0.5)[0]:
            got = there.recv(10) == b"again"
    check("and it, when it is back", got)


def device(cut, mend):
    """Datagrams that wait do not need the device of B that they came by."""
    there, s = sock("B", B), sock("A", A)
    s.connect(there.getsockname())
    # More than 64 KiB do not wait for the link to come up.
    meet(s, there)
    sizes = (0, 100, 4096, 20000, 65507)
    for n in sizes:
        s.send(bytes([n % 251]) * n)
    late = time.monotonic() + 20 * PATIENCE
    while listed("B", there)["rx_waiting"] < len(sizes) and time.monotonic() < late:
        time.sleep(0.05)
    check("the device goes while they wait", os.system(cut) == 0)
    got = [there.recv(70000) for _ in sizes]
    check("they are there", got == [bytes([n % 251]) * n for n in sizes], [len(x) for x in got])
    check("and no others", not select.select([there], [], [], 0)[0])
    error, late = None, time.monotonic() + 20 * PATIENCE
    while error is None and time.monotonic() < late:
        try:
            s.send(b"nowhere")
            time.sleep(0.05)
        except OSError as e:
            error = e
    names = {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ECONNREFUSED}
    check("a connected socket hears that its peer is gone", error and error.errno in names, error)
    check("rmmod does not go while there are sockets", subprocess.call(["rmmod", "zrs"], stderr=subprocess.DEVNULL) != 0)
    check("a new device", os.system(mend) == 0)
    late, arrived = time.monotonic() + 30 * PATIENCE, False
    while not arrived and time.monotonic() < late:
        try:
            s.send(b"again")
        except OSError:
            pass
        while select.select([there], [], [], 0.2)[0]:
            arrived |= there.recv(100) == b"again"
    check("a datagram over it", arrived)


CASES = {
    "overflow": overflow, "twice": twice, "unread": unread, "several": several, "stall": stall, "unmade": unmade, "gone": gone,
    "device": device,
}
CASES[sys.argv[1]](*sys.argv[2:])
