#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Rules of the network namespace on the sockets of host A; servers are in host B.

  rules.py                     prints a line for each thing it looked at
  rules.py serve IP PORT MODE  listens, says "listens" and stays
"""

import select
import socket
import struct
import subprocess
import sys

from connect import A, AUTO, B, B6, BY_TCP, BY_ZRS, NEVER, REQUIRED, SOL, SOL_ZRS, TCP, ZRS, ZRS_INFO, carrier, check, fails, host, new

LOCAL, RULE = 2, 9
BOTH = 3


def rules(*lines, where="A"):
    with host(where):
        subprocess.run(["zrs", "rules", "flush"], check=True)
        for line in lines:
            subprocess.run(["zrs", "rules", "add", *line.split()], check=True)


# Servers that are not closed by a test stay to its end.
SERVERS = []


def server(at, mode=AUTO, where="B"):
    with host(where):
        s = new(mode, socket.AF_INET6 if ":" in at[0] else socket.AF_INET)
        s.bind(at)
        s.listen()
    SERVERS.append(s)
    return s


def to(at, mode=AUTO):
    s = new(mode, socket.AF_INET6 if ":" in at[0] else socket.AF_INET)
    s.connect(at[:2])
    return carrier(s)


def connects():
    there = server((B, 0)).getsockname()
    port = there[1]
    check("no rule", to(there), (BY_ZRS, 0))
    for rule in ("tcp any", f"tcp port {port}", f"tcp connect net {B}", f"tcp net 10.77.0.0/16 port 1-{port}"):
        rules(rule)
        check(f"connect: {rule}", to(there), (BY_TCP, RULE))
    for rule in ("tcp bind any", f"tcp port {port + 1}", "tcp net 192.0.2.0/24", "tcp net ::/0"):
        rules(rule)
        check(f"connect: {rule}", to(there), (BY_ZRS, 0))
    rules(f"zrs net {B}", "tcp any")
    check("the first rule that matches", to(there), (BY_ZRS, 0))
    rules("tcp any")
    check("a server in another namespace", carrier(server((B, 0))), (BOTH, 0))
    for mode in (NEVER, REQUIRED):
        check(f"mode {mode} is ZRS", to(there, mode), (BY_ZRS, 0))
    there = server((B6, 0)).getsockname()
    rules(f"tcp net {B6}")
    check("IPv6", to(there), (BY_TCP, RULE))
    rules(f"tcp net {B}")
    check("IPv6, a rule for IPv4", to(there), (BY_ZRS, 0))
    s = new(family=socket.AF_INET6)
    there = server((B, 0)).getsockname()
    s.connect((f"::ffff:{B}", there[1]))
    check("v4-mapped, a rule for IPv4", carrier(s), (BY_TCP, RULE))


def own():
    rules()
    there = server((A, 0), NEVER, "A").getsockname()
    check("the own address: TCP, where ZRS alone listens", fails(to, there), "ECONNREFUSED")
    rules(f"zrs net {A}")
    check("a rule for ZRS", to(there), (BY_ZRS, 0))


def binds():
    for rule, at, want in (
        ("tcp bind port 7015", ("0.0.0.0", 7015), BY_TCP),
        ("tcp connect port 7015", ("0.0.0.0", 7015), BOTH),
        ("tcp bind net 10.77.0.0/16", ("0.0.0.0", 7015), BOTH),
        ("tcp bind net 10.77.0.0/16", (A, 7015), BY_TCP),
        ("tcp any", ("0.0.0.0", 0), BY_TCP),
        ("tcp port 1-65535", ("0.0.0.0", 0), BOTH),
        ("tcp port 7015", ("::", 7015), BY_TCP),
    ):
        rules(rule)
        s = server(at, where="A")
        check(f"bind {at[0]}: {rule}", carrier(s), (want, RULE if want == BY_TCP else 0))
        s.close()
    rules("tcp bind port 7015")
    s, other = server(("0.0.0.0", 7015), where="A"), new()
    check("the name", s.getsockname(), ("0.0.0.0", 7015))
    check("it is taken", fails(other.bind, ("0.0.0.0", 7015)), "EADDRINUSE")
    check("no TCP carries that yet", carrier(other)[0], 0)
    other.bind(("0.0.0.0", 7016))
    other.listen()
    check("another port", carrier(other), (BOTH, 0))
    epoll = select.epoll()
    epoll.register(s, select.EPOLLIN | select.EPOLLET)
    with host("B"):
        c = socket.create_connection((A, 7015))
    check("a client: epoll", [e for _, e in epoll.poll(20)], [select.EPOLLIN])
    t, peer = s.accept()
    check("accept()", (peer, t.getsockopt(SOL, socket.SO_PROTOCOL)), (c.getsockname(), TCP))
    check("SO_ACCEPTCONN", s.getsockopt(SOL, socket.SO_ACCEPTCONN), 1)
    rules("tcp any")
    s = new()
    s.listen()
    check("listen() without bind()", carrier(s), (BY_TCP, RULE))
    with host("B"):
        socket.create_connection((A, s.getsockname()[1]))
    check("takes clients", s.accept()[0].getsockopt(SOL, socket.SO_PROTOCOL), TCP)


def listed():
    rules("tcp any")
    s = new()
    s.connect(server((B, 0)).getsockname())
    name = "%s:%d" % s.getsockname()
    said = subprocess.run(["zrs", "ss", "-He"], check=True, capture_output=True, text=True).stdout
    mine = [line for line in said.splitlines() if name in line]
    check("zrs ss lists it", [line.split()[0] for line in mine], ["ESTAB"])
    check("and says what carries it", [line.split()[-2:] for line in mine], [["carrier:tcp", "why:rule"]])
    with host("B"):
        said = subprocess.run(["zrs", "ss", "-Hea"], check=True, capture_output=True, text=True).stdout
    check("not in another namespace", name in [line.split()[3] for line in said.splitlines()], False)
    s.close()
    said = subprocess.run(["zrs", "ss", "-He"], check=True, capture_output=True, text=True).stdout
    check("nor when it is closed", name in said, False)
    said = subprocess.run(["zrs", "stats"], check=True, capture_output=True, text=True).stdout
    check("zrs stats explains the reason", "rule: a rule says so" in said, True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        s = new(int(sys.argv[4]))
        s.bind((sys.argv[2], int(sys.argv[3])))
        s.listen()
        print("listens", flush=True)
        select.select([], [], [])
    keep = server((B, 0))
    connects()
    own()
    binds()
    listed()
    rules()
