#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Datagram sockets with a UDP socket inside (ZRS_DGRAM_UDP), in hosts A and B; each prints a line for
each thing it looked at.

  companion.py CASE...
"""

import errno
import os
import select
import socket
import struct
import subprocess
import sys
import threading
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from hosts import becomes, check, datagram, fails, host, PATIENCE, SCALE, SOL_ZRS, UDP, ZRS, ZRS_DGRAM_UDP

UDP_CORK, UDP_SEGMENT = 1, 103
ZRS_DGRAM_INFO = 17
SOL = socket.SOL_SOCKET
HOPS = 33
# Options that set the number of hops, and ask for it, and its control message.
IP_HOPS, IP_ASK_HOPS, IP_TOLD_HOPS = (0, socket.IP_TTL), (0, 12), (0, socket.IP_TTL)
IPV6_HOPS, IPV6_ASK_HOPS, IPV6_TOLD_HOPS = (41, 16), (41, 51), (41, 52)
IP_PKTINFO, IP_RECVTOS, IP_RECVORIGDSTADDR = 8, 13, 20
IPV6_RECVPKTINFO, IPV6_PKTINFO, IPV6_RECVTCLASS, IPV6_RECVORIGDSTADDR = 49, 50, 66, 74
UDP_GRO = 104
IP_RECVERR, MSG_ERRQUEUE = 11, 0x2000
IP_BIND_ADDRESS_NO_PORT = 24
A, B = os.environ["ADDR_A"], os.environ["ADDR_B"]
A6, B6 = os.environ["ADDR6_A"], os.environ["ADDR6_B"]
SO_PEEK_OFF = 42
GROUP = "239.77.0.1"


def holds(name, ok, seen=""):
    check(name, True if ok else seen, True)


def sock(name, at=None, beside=True, proto=ZRS, before=lambda s: None):
    """A socket in a host; of ZRS with UDP beside, unless said otherwise."""
    return datagram(name, at, proto, beside=beside and proto == ZRS, before=before)


def udp(name, at=None, before=lambda s: None):
    return sock(name, at, proto=UDP, before=before)


def waiting(s):
    """Datagrams in the queue of what has come by RDMA."""
    return struct.unpack("I", s.getsockopt(SOL_ZRS, ZRS_DGRAM_INFO, 256)[64:68])[0]


def links(name):
    out = subprocess.run(["/run/netns-exec", f"zrs{name}", "zrs", "links", "--json"],
                         stdout=subprocess.PIPE, check=True)
    return out.stdout.count(b'"accepted":false')


class Echo:
    """Numbered datagrams from one socket to another, each received before the next is sent."""

    def __init__(self, s, there, to):
        self.s, self.there, self.to, self.n = s, there, to, 0
        v6 = s.family == socket.AF_INET6
        # A datagram that has come by RDMA was no packet of IP, and has another number of hops.
        set_hops, ask, self.told = (IPV6_HOPS, IPV6_ASK_HOPS, IPV6_TOLD_HOPS) if v6 else (IP_HOPS, IP_ASK_HOPS, IP_TOLD_HOPS)
        s.setsockopt(*set_hops, HOPS)
        there.setsockopt(*ask, 1)

    def look(self, data, *control, flags=0):
        """Sends a datagram, and receives one: its bytes, the name of its sender, whether it has come by UDP, and its other
        control messages."""
        self.s.sendmsg([data], control, flags, self.to)
        return self.took()

    def took(self):
        data, cmsgs, _, name = self.there.recvmsg(70000, 500)
        found = {(level, kind): value for level, kind, value in cmsgs}
        hops = struct.unpack("i", found.pop(self.told))[0]
        return data, name[:2], hops == HOPS, found

    def once(self):
        """Whether it has come by UDP."""
        self.n += 1
        data, _, by_udp, _ = self.look(struct.pack("I", self.n))
        got = struct.unpack("I", data)[0]
        assert got == self.n, (got, self.n)
        return by_udp

    def until(self, by_udp, seconds=20):
        """Until they come by UDP, or by RDMA; how many that took."""
        end, first = time.monotonic() + seconds * PATIENCE, self.n
        while self.once() != by_udp:
            if time.monotonic() > end:
                return None
            time.sleep(0.02)
        return self.n - first


def peers():
    """A peer without ZRS, both ways: it stays UDP."""
    for text, ours, theirs in (("to a UDP server", sock("A", (A, 0)), udp("B", (B, 0))),
                               ("from a UDP client", sock("B", (B, 0)), udp("A", (A, 0)))):
        us, them = ours.getsockname(), theirs.getsockname()
        seen = []
        for n in range(40):
            ours.sendto(b"%d" % n, them)
            data, peer = theirs.recvfrom(10)
            theirs.sendto(data, peer)
            seen.append((ours.recvfrom(10), peer == us))
        check(text, seen, [((b"%d" % n, them), True) for n in range(40)])
        theirs.close()
    free = sock("A")
    there = udp("B", (B, 0))
    free.sendto(b"x", there.getsockname())
    data, peer = there.recvfrom(10)
    check("a port is chosen for both", peer, (A, free.getsockname()[1]))


def switch():
    """RDMA takes over, and none is lost; until the port closes."""
    s, there = sock("A", (A, 0)), sock("B", (B, 0))
    at = there.getsockname()
    e = Echo(s, there, at)
    took = e.until(by_udp=False)
    holds("RDMA takes over", took is not None and took > 8, took)
    holds("and stays", not any(e.once() for _ in range(50)))
    # A burst, with what UDP has in flight: none is lost at any time.
    for n in range(100):
        s.sendto(b"%d" % n, at)
    check("a burst", sorted(int(there.recv(10)) for _ in range(100)), list(range(100)))
    # UDP alone makes one datagram of several calls, and several of one.
    s.sendto(b"several ", socket.MSG_MORE, at)
    s.sendto(b"calls", at)
    check("MSG_MORE", there.recv(100), b"several calls")
    s.setsockopt(UDP, UDP_CORK, 1)
    s.sendto(b"cork", at)
    s.sendto(b"ed", at)
    s.setsockopt(UDP, UDP_CORK, 0)
    check("UDP_CORK", there.recv(100), b"corked")
    s.setsockopt(UDP, UDP_SEGMENT, 4)
    s.sendto(b"aaaabbbbcc", at)
    check("UDP_SEGMENT", [there.recv(100) for _ in range(3)], [b"aaaa", b"bbbb", b"cc"])
    s.setsockopt(UDP, UDP_SEGMENT, 0)
    holds("then RDMA goes on", not e.once())
    there.sendto(b"back", s.getsockname())
    check("the peer answers by UDP", s.recvfrom(10), (b"back", at))
    plain = sock("A", (A, 0), beside=False)
    plain.sendto(b"alone", at)
    check("a socket without UDP reaches it", there.recvfrom(10), (b"alone", plain.getsockname()))
    # The server goes, and another one comes that has no ZRS.
    there.close()
    other = udp("B", at)
    other.settimeout(0.2)
    # Too few in a second for another attempt with RDMA, of a port that is closed.
    got, end = 0, time.monotonic() + 20 * PATIENCE
    while got < 5 and time.monotonic() < end:
        s.sendto(b"new", at)
        got += fails(other.recv, 10) == "no error"
        time.sleep(0.2)
    holds("the port is closed: UDP takes over", got == 5, got)
    other.close()
    there = sock("B", at)
    took = Echo(s, there, at).until(by_udp=False)
    holds("the port is open again: RDMA takes over", took is not None, took)
    there.close()
    s.connect(at)
    end = time.monotonic() + 20 * PATIENCE
    while (error := fails(s.send, b"x")) == "no error" and time.monotonic() < end:
        time.sleep(0.1)
    check("nobody: as with UDP", error, "ECONNREFUSED")


def alone():
    """Sockets without UDP inside: they are answered by RDMA, and take nothing from a program that has their port in UDP."""
    there = sock("B", (B, 0))
    plain = sock("A", (A, 0), beside=False)
    for n in range(3):
        plain.sendto(b"question%d" % n, there.getsockname())
        data, peer = there.recvfrom(100)
        there.sendto(b"answer to " + data, peer)
        check(f"answer {n}", fails(plain.recvfrom, 100, socket.MSG_PEEK) == "no error" and plain.recvfrom(100),
              (b"answer to question%d" % n, there.getsockname()))
    server = udp("B", (B, 0))
    at = server.getsockname()
    other = sock("B", at, beside=False)
    e = Echo(sock("A", (A, 0)), server, at)
    end = time.monotonic() + 3 * PATIENCE
    seen = [e.once()]
    while time.monotonic() < end:
        seen.append(e.once())
        time.sleep(0.02)
    holds("a port that ZRS has for another program: by UDP", all(seen) and len(seen) > 20, seen)
    check("which gets nothing", waiting(other), 0)


def group_without_port():
    """An address that UDP alone can have, and no port: the first send takes one."""
    def bound(proto):
        s = sock("A", proto=proto)
        s.setsockopt(0, IP_BIND_ADDRESS_NO_PORT, 1)
        s.bind((GROUP, 0))
        there = udp("B", (B, 0))
        seen = [fails(s.sendto, b"%d" % n, there.getsockname()) for n in range(3)]
        got = [there.recvfrom(10) for _ in range(3)]
        seen += [data for data, _ in got]
        seen.append({name[1] for _, name in got} == {s.getsockname()[1]})
        s.close(), there.close()
        return seen

    check("bound to a group, without a port", bound(ZRS), bound(UDP))


def many():
    """Multicast and broadcast, and what a socket without UDP says."""
    join = socket.inet_aton(GROUP) + socket.inet_aton(B)
    member = lambda s: s.setsockopt(0, socket.IP_ADD_MEMBERSHIP, join)
    there = sock("B", ("0.0.0.0", 0), before=member)
    port = there.getsockname()[1]
    out = lambda s: s.setsockopt(0, socket.IP_MULTICAST_IF, socket.inet_aton(A))
    s = sock("A", (A, 0), before=out)
    for n in range(20):
        s.sendto(b"all", (GROUP, port))
        assert there.recvfrom(10) == (b"all", s.getsockname())
    holds("multicast", True)
    group = sock("B", (GROUP, port + 1), before=member)
    s.sendto(b"group", (GROUP, port + 1))
    check("a socket that is bound to the group", (group.recv(10), group.getsockname()),
          (b"group", (GROUP, port + 1)))
    group.close()
    check("broadcast: not allowed", fails(s.sendto, b"x", ("255.255.255.255", port)), "EACCES")
    net = (B.rsplit(".", 1)[0] + ".255", port)
    check("broadcast of a network: not allowed", [fails(s.sendto, b"x", net), fails(s.connect, net)], ["EACCES"] * 2)
    s.setsockopt(SOL, socket.SO_BROADCAST, 1)
    # A destination of a single host would be tried with RDMA after 8.
    before = links("A")
    for n in range(20):
        s.sendto(b"cast%d" % n, net)
        seen = there.recv(10)
        if seen != b"cast%d" % n:
            break
    check("broadcast of a network", seen, b"cast19")
    check("broadcast makes no link", links("A"), before)
    plain = sock("A", (A, 0), beside=False)
    check("without UDP: a group", fails(plain.sendto, b"x", (GROUP, port)), "ENETUNREACH")
    check("without UDP: joining", fails(member, plain), "ENOPROTOOPT")
    for allowed in 0, 1:
        plain.setsockopt(SOL, socket.SO_BROADCAST, allowed)
        for at in ("255.255.255.255", port), net, ("127.255.255.255", port):
            seen = [fails(plain.sendto, b"x", at), fails(plain.sendto, b"x", socket.MSG_MORE, at), fails(plain.connect, at)]
            check(f"without UDP: broadcast to {at[0]}, SO_BROADCAST {allowed}", seen, ["ENETUNREACH"] * 3)
    check("without UDP: broadcast makes no link", links("A"), before)


def ports():
    """Both ports or neither; when the option may be set."""
    other = udp("A", (A, 0))
    at = other.getsockname()
    check("UDP's port is in use", fails(sock, "A", at), "EADDRINUSE")
    plain = sock("A", at, beside=False)
    check("ZRS's port was given back", plain.getsockname(), at)
    other.close()
    check("ZRS's port is in use", fails(sock, "A", at), "EADDRINUSE")
    other = udp("A", at)
    check("UDP's port was not taken", other.getsockname(), at)
    other.close(), plain.close()
    ours = sock("A", at)
    check("both are taken: UDP", fails(udp, "A", at), "EADDRINUSE")
    check("both are taken: ZRS", fails(lambda: sock("A", at, beside=False)), "EADDRINUSE")
    check("too late", fails(ours.setsockopt, SOL_ZRS, ZRS_DGRAM_UDP, 0), "EINVAL")
    ours.close()
    other = udp("A", at)
    check("both are given back", other.getsockname(), at)
    s = sock("A", beside=False)
    seen = [s.getsockopt(SOL_ZRS, ZRS_DGRAM_UDP)]
    for value in (1, 0, 1):
        s.setsockopt(SOL_ZRS, ZRS_DGRAM_UDP, value)
        seen.append(s.getsockopt(SOL_ZRS, ZRS_DGRAM_UDP))
    check("the option", seen, [0, 1, 0, 1])
    check("another value", fails(s.setsockopt, SOL_ZRS, ZRS_DGRAM_UDP, 2), "EINVAL")


def queues():
    """Readiness is that of both queues, and both are read in turn."""
    there = sock("B", (B, 0))
    at = there.getsockname()
    plain, other = sock("A", (A, 0), beside=False), udp("A", (A, 0))
    level, edge = select.epoll(), select.epoll()
    level.register(there, select.EPOLLIN)
    edge.register(there, select.EPOLLIN | select.EPOLLET)
    for name, s in (("ZRS", plain), ("UDP", other)):
        for look in ("epoll", "edge", "recv"):
            s.sendto(b"x", at)
            if look != "recv":
                poll = level if look == "epoll" else edge
                check(f"{name}: {look}", [e for _, e in poll.poll(20 * PATIENCE)], [select.EPOLLIN])
            there.recv(10)
        check(f"{name}: no more", level.poll(0), [])
    for n in range(4):
        plain.sendto(b"zrs", at)
        other.sendto(b"udp", at)
    becomes(lambda: waiting(there), 4)
    time.sleep(PATIENCE)
    seen = []
    for n in range(8):
        peeked = there.recv(10, socket.MSG_PEEK)
        seen.append(there.recv(10))
        holds(f"MSG_PEEK shows what comes next, {n}", peeked == seen[-1], (peeked, seen[-1]))
    holds("in turn", all(a != b for a, b in zip(seen, seen[1:])), seen)
    there.setblocking(False)
    check("empty", fails(there.recv, 10), "EAGAIN")
    check("shutdown() without a peer", fails(there.shutdown, socket.SHUT_RD), "ENOTCONN")
    other.sendto(b"late", at)
    plain.sendto(b"late", at)
    becomes(lambda: waiting(there), 1)
    time.sleep(PATIENCE)
    there.setblocking(True)
    check("after shutdown(): the rest, then the end", [there.recv(10) for _ in range(3)],
          [b"late", b"late", b""])
    check("after shutdown(): not blocking", fails(there.recv, 10, socket.MSG_DONTWAIT), "EAGAIN")


def peeks():
    """SO_PEEK_OFF: over what has come by RDMA, then over what has come by UDP; received in the same order."""
    with host("B"):
        there = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, ZRS)
    there.setsockopt(SOL, SO_PEEK_OFF, 0)
    there.setsockopt(SOL_ZRS, ZRS_DGRAM_UDP, 1)
    there.bind((B, 0))
    there.setblocking(True)
    at = there.getsockname()
    plain, other = sock("A", (A, 0), beside=False), udp("A", (A, 0))
    off = lambda: there.getsockopt(SOL, SO_PEEK_OFF)
    look = lambda n=9, flags=0: (there.recv(n, socket.MSG_PEEK | flags), off())
    for n in 1, 2:
        plain.sendto(b"zrs%d" % n, at)
        other.sendto(b"udp%d" % n, at)
    becomes(lambda: waiting(there), 2)
    time.sleep(PATIENCE)
    check("peeked", [look() for _ in range(4)], [(b"zrs1", 4), (b"zrs2", 8), (b"udp1", 12), (b"udp2", 16)])
    check("behind all", fails(look, 9, socket.MSG_DONTWAIT), "EAGAIN")
    began = time.thread_time()
    for n, s in enumerate((other, plain), 3):
        threading.Timer(0.5 * SCALE, s.sendto, (b"late%d" % n, at)).start()
        check(f"one that comes later, {n}", look(), (b"late%d" % n, 4 * 4 + 5 * (n - 2)))
    # Of the second that it waits; what the machine takes from the guest counts here, too.
    took = time.thread_time() - began
    holds("it waits, and does not look all the while", took < 0.5 * SCALE, took)
    fails(there.setsockopt, SOL, SO_PEEK_OFF, 4 + 4 + 5 + 2)
    check("set to another place", [look(1), look()], [(b"p", 16), (b"1", 17)])
    fails(there.setsockopt, SOL, SO_PEEK_OFF, 13)
    check("received", [(there.recv(9), off()) for _ in range(6)],
          [(b"zrs1", 9), (b"zrs2", 5), (b"late4", 0), (b"udp1", 0), (b"udp2", 0), (b"late3", 0)])
    plain.sendto(b"zrs", at)
    other.sendto(b"udp", at)
    becomes(lambda: waiting(there), 1)
    time.sleep(PATIENCE)
    fails(there.shutdown, socket.SHUT_RD)
    check("after shutdown(): both, then the end", [look() for _ in range(3)], [(b"zrs", 3), (b"udp", 6), (b"", 6)])
    fails(there.setsockopt, SOL, SO_PEEK_OFF, -1)
    check("none any more", [look()[1] for _ in range(2)], [-1, -1])


def controls():
    """Control messages and UDP_SEGMENT once RDMA has taken over: those of received datagrams are the same by both, those
    of sent datagrams are UDP's, and RDMA goes on."""
    for family, a, b, more, every in (
        (socket.AF_INET, A, B, A.rsplit(".", 1)[0] + ".101", "0.0.0.0"),
        (socket.AF_INET6, A6, B6, A6.rsplit(":", 1)[0] + ":101", "::"),
    ):
        v6 = family == socket.AF_INET6
        text = ", IPv6" if v6 else ""
        with host("A"):
            os.system(f"ip addr add {more}/{'64 dev va nodad' if v6 else '24 dev va'}")
        asked = [(41, n) for n in (IPV6_RECVPKTINFO, IPV6_RECVTCLASS, IPV6_RECVORIGDSTADDR)] if v6 else (
            [(0, n) for n in (IP_PKTINFO, IP_RECVTOS, IP_RECVORIGDSTADDR)])
        ask = lambda s: [s.setsockopt(*option, 1) for option in asked]
        new = lambda name, at, before=lambda s: None, proto=ZRS: (
            datagram(name, at, proto, family, proto == ZRS, before))
        s, there = new("A", (every, 0)), new("B", (every, 0), ask)
        e = Echo(s, there, (b, there.getsockname()[1]))
        _, name, by_udp, want = e.look(b"first")
        check(f"the first one comes by UDP, with all that was asked for{text}", (by_udp, len(want)), (True, len(asked)))
        holds(f"RDMA takes over{text}", e.until(by_udp=False) is not None)
        check(f"by RDMA: the same control messages{text}", e.look(b"then"), (b"then", name, False, want))
        # IP_PKTINFO of a sent one: the address that it comes from.
        own = socket.inet_pton(family, more)
        info = (41, IPV6_PKTINFO, own + bytes(4)) if v6 else (0, IP_PKTINFO, bytes(4) + own + bytes(4))
        check(f"IP_PKTINFO: from another address{text}", e.look(b"elsewhere", info)[:3],
              (b"elsewhere", (more, name[1]), True))
        there.sendto(b"back", (more, name[1]))
        check(f"and the answer goes there{text}", s.recvfrom(10)[0], b"back")
        holds(f"RDMA goes on{text}", not e.once())
        # UDP_SEGMENT, as an option of one call and of all.
        data = os.urandom(60500)
        for size, sent in (4, b"aaaabbbbcc"), (1000, data):
            want = [sent[i:i + size] for i in range(0, len(sent), size)]
            got = [e.look(sent, (UDP, UDP_SEGMENT, struct.pack("H", size)))] + [e.took() for _ in want[1:]]
            check(f"UDP_SEGMENT, {len(sent)} by {size}{text}", [(d, by) for d, _, by, _ in got] == [(d, True) for d in want],
                  True)
        both = info, (UDP, UDP_SEGMENT, struct.pack("H", 3))
        got = [e.look(b"aaabb", *both), e.took()]
        check(f"with IP_PKTINFO{text}", [(d, n[0]) for d, n, _, _ in got], [(b"aaa", more), (b"bb", more)])
        check(f"a bad one{text}", fails(e.look, b"x", (UDP, UDP_SEGMENT, b"")), "EINVAL")
        check(f"a source that is another host's{text}", fails(e.look, b"x", info[:2] + (info[2].replace(
            own, socket.inet_pton(family, b)),)), "EINVAL" if v6 else "ENETUNREACH")
        holds(f"and RDMA goes on{text}", not e.once())
        s.close(), there.close()
        # UDP_GRO of the receiver: as with UDP alone.
        seen = []
        for proto in UDP, ZRS:
            s, there = new("A", (a, 0), proto=proto), new("B", (b, 0), proto=proto)
            there.setsockopt(UDP, UDP_GRO, 1)
            s.sendmsg([b"aaaabbbbcc"], [(UDP, UDP_SEGMENT, struct.pack("H", 4))], 0, there.getsockname())
            got = b"", []
            while len(got[0]) < 10:
                data, cmsgs, _, _ = there.recvmsg(100, 100)
                got = got[0] + data, got[1] + [(len(data), cmsgs)]
            seen.append(got)
            s.close(), there.close()
        check(f"UDP_GRO{text}", seen[1], seen[0])
        with host("A"):
            os.system(f"ip addr del {more}/{'64' if v6 else '24'} dev va")


def lost():
    """The receiver's device goes: UDP takes over, and RDMA again when there is another one."""
    s, there = sock("A", (A, 0)), sock("B", (B, 0))
    e = Echo(s, there, there.getsockname())
    holds("RDMA takes over", e.until(by_udp=False) is not None)
    subprocess.run(["rdma", "link", "delete", "rxeB"], check=True)
    there.settimeout(0.5)
    # What was sent before the link's end is known is lost with it.
    row, end = 0, time.monotonic() + 20 * PATIENCE
    while row < 20 and time.monotonic() < end:
        try:
            row = row + 1 if e.look(b"x")[2] else 0
        except TimeoutError:
            row = 0
    check("the link is lost: UDP takes over", row, 20)
    there.settimeout(20 * PATIENCE)
    with host("B"):
        subprocess.run(["rdma", "link", "add", "rxeB", "type", "rxe", "netdev", "vb"], check=True)
    holds("there is another device: RDMA takes over", e.until(by_udp=False, seconds=60) is not None)


def told():
    """Errors of UDP are the socket's."""
    gone = udp("B", (B, 0))
    at = gone.getsockname()
    gone.close()
    s = sock("A", (A, 0))
    s.connect(at)
    s.send(b"x")
    check("a receive", fails(s.recv, 10), "ECONNREFUSED")
    s.send(b"x")
    poll = select.poll()
    poll.register(s, 0)
    check("poll()", [e for _, e in poll.poll(20000 * PATIENCE)], [select.POLLERR])
    check("SO_ERROR", s.getsockopt(SOL, socket.SO_ERROR), errno.ECONNREFUSED)
    free = sock("A", (A, 0), before=lambda s: s.setsockopt(0, IP_RECVERR, 1))
    free.sendto(b"lost", at)
    poll = select.poll()
    poll.register(free, 0)
    poll.poll(20000 * PATIENCE)
    data, cmsgs, flags, peer = free.recvmsg(10, 512, MSG_ERRQUEUE)
    code = struct.unpack("IBBBBII", cmsgs[0][2][:16])[:4]
    check("the error queue", (data, peer, code), (b"lost", at, (errno.ECONNREFUSED, 2, 3, 3)))


def clients():
    """A server with 1000 clients makes no links; if they are busy, few at a time."""
    with host("A"):
        os.system("ip route add local 10.99.0.0/16 dev lo")
    with host("B"):
        os.system(f"ip route add 10.99.0.0/16 via {A}")
    there = sock("B", (B, 0))
    at = there.getsockname()
    before = links("B")
    with host("A"):
        met = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(1000)]
    for n, s in enumerate(met):
        s.bind((f"10.99.{n // 250}.{n % 250 + 1}", 0))
        s.settimeout(20 * PATIENCE)
        s.connect(at)
        s.send(b"q")
        client = there.recvfrom(10)[1]
        for _ in range(3):
            there.sendto(b"a", client)
    holds("each has its answers", all(s.recv(10) == b"a" for s in met))
    # One of the cases before may end.
    made = links("B") - before
    holds("no links", made <= 0, made)
    for s in met[:100]:
        for n in range(20):
            there.sendto(b"b", s.getsockname())
    made = links("B") - before
    holds("busy clients: few links", made <= 8, made)


for case in sys.argv[1:]:
    {
        "peers": peers, "switch": switch, "alone": alone, "group_without_port": group_without_port, "many": many, "ports": ports,
        "queues": queues, "peeks": peeks, "controls": controls, "lost": lost, "told": told, "clients": clients,
    }[case]()
