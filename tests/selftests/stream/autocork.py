#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Small messages between host A and host B, with automatic corking and without. Prints a line for each check."""

import os
import random
import select
import signal
import socket
import sys
import threading

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from hosts import host

ZRS = 253
B = os.environ["ADDR_B"]
PATIENCE = int(os.environ.get("TIME_SCALE", "1")) * int(os.environ.get("LIMIT_SCALE", "1"))
PARAMETER = "/sys/module/zrs/parameters/autocorking"
PACKETS = "/sys/class/infiniband/rxeA/ports/1/hw_counters/sent_pkts"
rng = random.Random(int(os.environ.get("SEED", "1")))
listener = None


def check(name, good, text=""):
    print(f"{'ok' if good else 'not ok'} - {name}{'' if good or not text else ': ' + text}", flush=True)


def number(path):
    with open(path, encoding="ascii") as f:
        return int(f.read())


def counters():
    """Packets that host A's device sent, and work requests and signaled ones of the module."""
    stats = {}
    with os.popen("zrs stats --prometheus") as lines:
        for line in lines:
            name, _, value = line.partition(" ")
            stats[name] = value
    return (number(PACKETS), int(float(stats["zrs_work_requests_total"])), int(float(stats["zrs_signaled_total"])))


def pair():
    with host("A"):
        s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, ZRS)
    s.connect((B, listener.getsockname()[1]))
    return s, listener.accept()[0]


def read_all(s, n):
    """The next `n` bytes; fewer if they do not come."""
    got = bytearray()
    while len(got) < n:
        if not select.select([s], [], [], 10 * PATIENCE)[0]:
            break
        part = s.recv(n - len(got))
        if not part:
            break
        got += part
    return bytes(got)


def stream(size, messages):
    """Sends messages of `size` bytes in a row. The counters' growth, and whether all has come."""
    a, b = pair()
    data = rng.randbytes(size * 64)
    got = []
    reader = threading.Thread(target=lambda: got.append(read_all(b, size * messages)))
    before = counters()
    reader.start()
    for i in range(messages):
        at = i % 64 * size
        a.sendall(data[at : at + size])
    reader.join()
    grown = [after - was for after, was in zip(counters(), before)]
    a.close()
    b.close()
    expected = (data * (messages // 64 + 1))[: size * messages]
    return grown, got[0] == expected


def in_a_row(size, most_requests):
    """`most_requests`: those of a thousand calls, on both sides: messages, and the reader's credit."""
    messages = 6000
    name = f"messages of {size} bytes in a row"
    # A packet has up to 1024 bytes, and a message has one more for its header.
    bounds = (messages * size // 1024 + 2 * messages * most_requests // 1000, messages * most_requests // 1000)
    # On a busy machine the device may be done with each message before the next one comes.
    for attempt in range(4):
        (packets, requests, _), whole = stream(size, messages)
        if not whole or (packets <= bounds[0] and requests <= bounds[1]):
            break
        print(f"# attempt {attempt}: {packets} packets, {requests} work requests", flush=True)
    check(f"{name}: all bytes come, in order", whole)
    check(f"{name}: packets", packets <= bounds[0], f"{packets}, at most {bounds[0]}")
    check(f"{name}: work requests", requests <= bounds[1], f"{requests}, at most {bounds[1]}")


def without():
    with open(PARAMETER, "w", encoding="ascii") as f:
        f.write("0")
    messages = 640
    (packets, requests, _), whole = stream(64, messages)
    check("autocorking=0: all bytes come, in order", whole)
    check("autocorking=0: a call is a message", min(packets, requests) >= messages, f"{packets} packets, {requests}")
    with open(PARAMETER, "w", encoding="ascii") as f:
        f.write("1")


def ping_pong(writes):
    """Requests of `writes` messages, each answered by one."""
    a, b = pair()
    rounds = 500

    def answer():
        for _ in range(rounds):
            b.sendall(read_all(b, 64 * writes)[:64])

    server = threading.Thread(target=answer)
    before = counters()
    server.start()
    whole = True
    for _ in range(rounds):
        for _ in range(writes):
            a.sendall(bytes(64))
        whole &= len(read_all(a, 64)) == 64
    server.join()
    _, requests, signaled = (after - was for after, was in zip(counters(), before))
    a.close()
    b.close()
    name = f"{writes} of 64 bytes and an answer"
    check(f"{name}: all come", whole)
    least = rounds * (writes + 1)
    check(f"{name}: a call is a message", requests >= least, f"{requests} work requests, at least {least}")
    # One of sixteen is, and more where a call waits for room.
    check(f"{name}: unsignaled", signaled <= requests // 8, f"{signaled} signaled ones of {requests}")


def tails():
    """Some messages, and then no call any more: the last ones come nevertheless."""
    a, b = pair()
    good = True
    for n in range(1, 300):
        flags = socket.MSG_DONTWAIT if n % 2 else 0
        size = rng.choice((1, 64, 700, 1400, 4000))
        # Nobody reads while it is sent: it has room.
        data = rng.randbytes(size * min(n % 40 + 1, 40_000 // size))
        sent = 0
        for at in range(0, len(data), size):
            try:
                sent += a.send(data[at : at + size], flags)
            except BlockingIOError:
                break
            if sent != at + size and at + size < len(data):
                break
        if read_all(b, sent) != data[:sent]:
            good = False
            check("a tail comes", False, f"round {n}: messages of {size} bytes, {sent} in all")
            break
    check("what nothing follows comes", good)
    a.close()
    b.close()


def ends(how):
    good = True
    for n in range(60):
        a, b = pair()
        data = rng.randbytes(70 * (n + 1))
        child = os.fork()
        if child == 0:
            for at in range(0, len(data), 70):
                a.sendall(data[at : at + 70])
            if how == "shutdown":
                a.shutdown(socket.SHUT_WR)
            os._exit(0)
        if how != "shutdown":
            a.close()
        os.waitpid(child, 0)
        got = read_all(b, len(data) + 1)
        good &= got == data
        a.close()
        b.close()
    check(f"bytes before {how} come, and then the end", good)


def more():
    """What MSG_MORE announces waits behind what is held, and leaves with the next call."""
    a, b = pair()
    good = True
    for _ in range(50):
        for _ in range(10):
            a.send(b"x" * 10)
        a.send(b"y", socket.MSG_MORE)
        a.send(b"z")
        good &= read_all(b, 102) == b"x" * 100 + b"yz"
    check("MSG_MORE behind others", good)
    a.close()
    b.close()


def two_threads():
    """Two threads that send on one connection: no message is torn."""
    a, b = pair()
    each = 1500

    def send(what):
        for _ in range(each):
            a.sendall(what * 700)

    threads = [threading.Thread(target=send, args=(what,)) for what in (b"a", b"b")]
    for t in threads:
        t.start()
    got = read_all(b, 2 * each * 700)
    for t in threads:
        t.join()
    calls = [got[at : at + 700] for at in range(0, len(got), 700)]
    whole = [calls.count(what * 700) for what in (b"a", b"b")]
    check("two threads: each call's bytes stay together", whole == [each, each], f"{whole} of {each}")
    a.close()
    b.close()


signal.alarm(280 * PATIENCE)
with host("B"):
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, ZRS)
listener.bind((B, 0))
listener.listen(16)
in_a_row(64, 400)
in_a_row(700, 600)
in_a_row(1400, 800)
without()
ping_pong(1)
ping_pong(5)
tails()
ends("shutdown")
ends("exit")
more()
two_threads()
listener.close()
