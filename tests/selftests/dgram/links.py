#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Sends datagrams to many addresses that do not answer, as several users, where datagrams can make 10
links, half of them for one user.

  links.py [first]          first: in the first network namespace, whose root has no share to keep to
"""

import collections
import errno
import ipaddress
import json
import os
import socket
import subprocess
import sys
import time

PATIENCE = int(os.environ.get("TIME_SCALE", "1")) * int(os.environ.get("LIMIT_SCALE", "1"))


def sock(uid):
    os.seteuid(uid)
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 253)
    os.seteuid(0)
    s.setblocking(False)
    return s


def many(s, first, count):
    seen = collections.Counter()
    for i in range(count):
        try:
            s.sendto(b"datagram", (str(ipaddress.ip_address(first) + i), 7000))
            seen["sent"] += 1
        except OSError as e:
            seen[errno.errorcode[e.errno]] += 1
    return dict(seen)


def check(name, seen, want):
    print(f"{'ok' if seen == want else 'not ok'} - {name}{'' if seen == want else f': {seen}'}", flush=True)


def links():
    """How many links this host has."""
    return len(json.loads(subprocess.check_output(["zrs", "links", "--json"]))["links"])


def quotas():
    """What three users get while the links last: for a second."""
    one, two, root = sock(65534), sock(65533), sock(0)
    return {
        "half of the links are for one user, then it is ENOBUFS": many(one, "10.77.0.100", 20),
        "a link that is there needs no other": many(one, "10.77.0.100", 5),
        "another socket of the user has the same quota": many(sock(65534), "10.77.0.130", 2),
        "another user has links, too": many(two, "10.77.0.140", 5),
        f"root has {'as many as it wants' if FIRST else 'the rest'}": many(root, "10.77.0.150", 20),
    }


FIRST = "first" in sys.argv
WANT = ({"sent": 5, "ENOBUFS": 15}, {"sent": 5}, {"ENOBUFS": 2}, {"sent": 3, "ENOBUFS": 2},
        {"sent": 20} if FIRST else {"sent": 2, "ENOBUFS": 18})
# A link without use for a second gives way to another one, and soon it fails: a round that takes
# longer may see that, and is done again.
for _ in range(30):
    begin = time.monotonic()
    seen = quotas()
    if tuple(seen.values()) == WANT or time.monotonic() < begin + 0.9:
        break
    late = time.monotonic() + 30 * PATIENCE
    while links() and time.monotonic() < late:
        time.sleep(0.2)
for (name, got), want in zip(seen.items(), WANT):
    check(name, got, want)
one = sock(65534)
late, again = time.monotonic() + 30 * PATIENCE, {}
while again != {"sent": 1} and time.monotonic() < late:
    time.sleep(0.2)
    again = many(one, "10.77.0.160", 1)
check("links that have ended do not count", again, {"sent": 1})
