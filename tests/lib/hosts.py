# SPDX-License-Identifier: GPL-2.0
"""For tests in Python that run in a host: a line for each thing that was looked at, and sockets in the other hosts."""

import contextlib
import errno
import os
import select
import signal
import socket
import struct
import time

CLONE_NEWNET = 0x40000000
UDP, ZRS, SOL_ZRS, ZRS_DGRAM_UDP, MSG_ERRQUEUE = 17, 253, 0x5A52, 16, 0x2000
# How much slower than elsewhere everything is.
SCALE = int(os.environ.get("TIME_SCALE", "1"))
# The same for what must happen and is waited for, on a machine that is busy as well.
PATIENCE = SCALE * int(os.environ.get("LIMIT_SCALE", "1"))


def check(name, seen, want):
    """Prints whether a value is the expected one."""
    if seen == want:
        print(f"ok - {name}", flush=True)
    else:
        print(f"not ok - {name}: expected {want}, got {seen}", flush=True)


def child(cpu, work, *args):
    """A process on a processor, which runs until it is killed."""
    pid = os.fork()
    if pid == 0:
        os.sched_setaffinity(0, {cpu})
        try:
            work(*args)
        finally:
            os._exit(1)
    return pid


def end(pid):
    """Kills a child."""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def answer(conn):
    """Sends each byte of a connection back."""
    while byte := conn.recv(1):
        conn.sendall(byte)


def by_rdma(sender, receiver):
    """Sends until datagrams come by RDMA: those are no packets of IP, and have no number of hops."""
    ttl, recvttl = 33, 12
    sender.setsockopt(0, socket.IP_TTL, ttl)
    receiver.setsockopt(0, recvttl, 1)
    late = time.monotonic() + 20 * PATIENCE
    hops = ttl
    while hops == ttl and time.monotonic() < late:
        sender.sendto(b"x", receiver.getsockname())
        hops = struct.unpack("i", receiver.recvmsg(100, 100)[1][0][2])[0]
        time.sleep(0.01)
    check("datagrams come by RDMA", hops != ttl, True)
    receiver.setsockopt(0, recvttl, 0)


def meet(sender, receiver, data=b"first"):
    """Sends to the receiver until a datagram arrives, and takes all of them. On a busy machine a link may not be made in
    time, or give no room: the datagram is lost with it."""
    at, late, again = receiver.getsockname(), time.monotonic() + 80 * PATIENCE, False
    while True:
        try:
            sender.sendto(data, at)
        except OSError as e:
            # Of a connected socket: the link was lost.
            if e.errno != errno.EHOSTUNREACH:
                raise
        if select.select([receiver], [], [], 10 * PATIENCE)[0] or time.monotonic() > late:
            break
        again = True
    receiver.recv(70000)
    # More than one may arrive.
    while again and select.select([receiver], [], [], PATIENCE)[0]:
        receiver.recv(70000)
    if again:
        forget_errors(sender)


def forget_errors(s):
    """Takes the socket's error, and what its error queue has."""
    s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    # With a time limit, Python waits.
    limit = s.gettimeout()
    s.setblocking(False)
    while fails(s.recvmsg, 10, 512, MSG_ERRQUEUE) == "no error":
        pass
    s.settimeout(limit)


def fails(call, *args):
    """The name of the error with which a call fails, or "no error"."""
    try:
        call(*args)
    except OSError as e:
        # A time limit of Python's has no number.
        return errno.errorcode[e.errno] if e.errno else "time limit"
    return "no error"


def becomes(call, value):
    """What `call` returns when it has become `value`, or after a while."""
    late = time.monotonic() + 20 * PATIENCE
    while (seen := call()) != value and time.monotonic() < late:
        time.sleep(0.01)
    return seen


def skip(name, why):
    """Prints that something is not looked at here; the name has no colon."""
    print(f"skip - {name}: {why}", flush=True)


@contextlib.contextmanager
def host(name):
    """What this thread opens in the block is in host A, B or C."""
    with open("/proc/thread-self/ns/net") as here, open(f"/run/netns/zrs{name}") as there:
        os.setns(there.fileno(), CLONE_NEWNET)
        try:
            yield
        finally:
            os.setns(here.fileno(), CLONE_NEWNET)


def datagram(name, at=None, proto=ZRS, family=socket.AF_INET, beside=False, before=lambda s: None):
    """A datagram socket in a host, with a time limit; `beside`: with a UDP socket inside. `before` may set options
    before it is bound."""
    with host(name):
        s = socket.socket(family, socket.SOCK_DGRAM, proto)
    if beside:
        s.setsockopt(SOL_ZRS, ZRS_DGRAM_UDP, 1)
    s.settimeout(20 * PATIENCE)
    before(s)
    if at is not None:
        s.bind(at)
    return s
