#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Keys of hosts A and B, and sockets that connect them."""

import os
import socket
import subprocess
import sys
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tcp"))
from connect import A, AUTO, B, B6, BY_TCP, BY_ZRS, NEVER, REQUIRED, ZRS, carrier, check, fails, host, new
from hosts import becomes

KEY = 13
A6 = os.environ["ADDR6_A"]
OLD, NEW, OTHER = (bytes([n]) * 32 for n in range(3))
OF = {"A": f"{B}/24", "B": f"{A}/24"}


def zrs(where, *words, **how):
    with host(where):
        return subprocess.run(["zrs", *words], check=True, capture_output=True, **how).stdout.decode()


def add(where, secret, name="k", net=None):
    zrs(where, "key", "add", net or OF[where], name, "--file", "-", input=secret)


def remove(where, *name, net=None):
    zrs(where, "key", "remove", net or OF[where], *name)


def cut():
    """Ends all links."""
    zrs("A", "peers", "deny", "any")
    zrs("A", "peers", "flush")


def counts():
    said = zrs("A", "key", "list", "--counts").strip().splitlines()[-1].split(": ")[1]
    return {name: int(n) for name, n in (part.rsplit(" ", 1) for part in said.split(", "))}


def at_rest():
    """The counters when nothing is added: of a link that has failed, the other end may count later."""
    last = None
    while (now := counts()) != last:
        last = now
        time.sleep(0.3)
    return now


def more(before):
    return {name: n - before[name] for name, n in counts().items() if n != before[name]}


def counted(name, before, want):
    """What is added becomes this: the other end of a link may count a moment later."""
    check(name, becomes(lambda: more(before), want), want)


def server(where, at):
    with host(where):
        s = new(AUTO, socket.AF_INET6 if ":" in at else socket.AF_INET)
        s.bind((at, 0))
        s.listen(64)
    return s


def to(s, mode, where="A"):
    with host(where):
        c = new(mode, s.family)
    c.connect(s.getsockname()[:2])
    return c


def answer(s, mode, where="A"):
    """The carrier and the reason, or the error."""
    seen = []
    failed = fails(lambda: seen.append(carrier(to(s, mode, where))))
    return seen[0] if seen else failed


def refused(name, s, reasons):
    """No link from A to B, in any mode."""
    before = at_rest()
    for mode in (NEVER, REQUIRED):
        check(f"{name}, mode {mode}", answer(s, mode), "EACCES")
    check(f"{name}, mode AUTO", answer(s, AUTO), (BY_TCP, KEY))
    counted(f"{name}: counted", before, {what: 3 for what in reasons})


def echo(c, s, data):
    """Both directions of a connection."""
    c.sendall(data)
    got = b""
    while len(got) < len(data):
        got += s.recv(1 << 16)
    s.sendall(got[:1000])
    back = b""
    while len(back) < min(1000, len(data)):
        back += c.recv(1000)
    return got == data and back == data[:1000]


def pair(v4):
    """A connection from A to B. Those of before may wait in the queue."""
    c = to(v4, NEVER)
    while True:
        s, peer = v4.accept()
        if peer == c.getsockname():
            return c, s


def both_ways(v4, v6, back):
    before = counts()
    check("without keys", answer(v4, NEVER), (BY_ZRS, 0))
    check("nothing is proved", more(before), {})
    add("A", OLD)
    add("B", OLD)
    before = counts()
    c, s = pair(v4)
    check("the same key", (carrier(c), echo(c, s, os.urandom(20000))), ((BY_ZRS, 0), True))
    check("the other direction", answer(back, NEVER, "B"), (BY_ZRS, 0))
    counted("proved at both ends of both links", before, {"proved": 4})
    check("another connection needs no other proof", (answer(v4, NEVER), more(before)), ((BY_ZRS, 0), {"proved": 4}))
    check("IPv6 has no key", answer(v6, NEVER), (BY_ZRS, 0))
    check("and proves nothing", more(before), {"proved": 4})
    cut()
    with host("B"):
        to_b = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, ZRS)
        to_b.bind((B, 0))
    to_b.settimeout(20)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, ZRS) as d:
        for n in range(3):
            d.sendto(bytes([n]) * 5000, to_b.getsockname())
    got = [to_b.recv(9000) for _ in range(3)]
    check("datagrams wait for the proof", got, [bytes([n]) * 5000 for n in range(3)])
    check("which there was", becomes(lambda: more(before).get("proved", 0) >= 6, True), True)
    to_b.close()
    add("A", OLD, net=f"{B6}/64")
    check("a key on one side alone", answer(v6, NEVER), "EACCES")
    add("B", OLD, net=f"{A6}/64")
    before = at_rest()
    check("IPv6 with a key", answer(v6, NEVER), (BY_ZRS, 0))
    counted("IPv6 with a key: proved at both ends", before, {"proved": 2})
    for where, net in (("A", f"{B6}/64"), ("B", f"{A6}/64")):
        remove(where, net=net)


def mistakes(v4):
    cut()
    add("B", OTHER)
    refused("another key", v4, ("another key", "ended by peers"))
    remove("B")
    cut()
    refused("none there", v4, ("no key here", "no key there"))
    add("B", OLD)
    remove("A")
    cut()
    refused("none here", v4, ("no key here", "no key there"))
    with host("A"), socket.socket(socket.AF_INET, socket.SOCK_DGRAM, ZRS) as d:
        d.settimeout(20)
        d.connect((B, 7009))
        check("a datagram", fails(lambda: [d.send(b"x") for _ in range(3)] and d.recv(1)), "EACCES")
    add("A", OLD)
    check("the same again", answer(v4, NEVER), (BY_ZRS, 0))


def rotation(v4):
    """Each step leaves the connections that there are, and links can be made in between."""
    live, s = pair(v4)
    for step in (
        lambda: add("A", NEW, "new"),
        lambda: add("B", NEW, "new"),
        lambda: remove("A", "k"),
        lambda: remove("B", "k"),
    ):
        step()
        check("the connection stays", echo(live, s, b"x" * 10000), True)
    check("a third key", fails_to_add("B"), True)
    for a, b in ((("k",), ("k", "new")), (("k", "new"), ("k",)), (("new", "k"), ("new",)), (("new",), ("k", "new"))):
        for where, names in (("A", a), ("B", b)):
            for name in names:
                add(where, OLD if name == "k" else NEW, name)
            for name in {"k", "new"} - set(names):
                quiet_remove(where, name)
        cut()
        check(f"A has {a}, B {b}", answer(v4, NEVER), (BY_ZRS, 0))
    for where in "AB":
        remove(where)
    live.close()


def quiet_remove(where, name):
    with host(where):
        subprocess.run(["zrs", "key", "remove", OF[where], name], capture_output=True, check=False)


def fails_to_add(where):
    add(where, OLD, "k")
    with host(where):
        words = ["zrs", "key", "add", OF[where], "third", "--file", "-"]
        said = subprocess.run(words, input=OTHER, capture_output=True, check=False)
    return said.returncode == 1 and b"has 2 keys already" in said.stderr


def removal(v4):
    add("A", OLD)
    add("B", OLD)
    live, s = pair(v4)
    remove("B")
    check("a key that is removed ends nothing", echo(live, s, b"x" * 10000), True)
    cut()
    check("but the next link", answer(v4, NEVER), "EACCES")
    remove("A")
    plain = to(v4, NEVER)
    check("without any key", carrier(plain), (BY_ZRS, 0))
    add("A", OLD)
    check("a key ends links without a proof", fails(plain.recv, 1), "ECONNRESET")
    remove("A")


def main():
    v4, v6, back = server("B", B), server("B", B6), server("A", A)
    both_ways(v4, v6, back)
    mistakes(v4)
    rotation(v4)
    removal(v4)


if __name__ == "__main__":
    main()
