#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Connects of host A to host C, which has no ZRS.

  cache.py asking   as a user: how many hosts are asked at a time
  cache.py known    what is remembered
  cache.py again    what is remembered for a minute is asked about again then
  cache.py slow     a host with ZRS, host B, whose first link takes too long
  cache.py many     more ports without ZRS, in host B, than are remembered
"""

import json
import os
import resource
import subprocess
import sys
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from hosts import PATIENCE
from connect import AUTO, B, BY_TCP, BY_ZRS, C, KNOWN, NO_LISTENER, PARAMETERS, SLOW, TCP, ZRS, carrier, check, host, listener, new

ASKING = 10
HOSTS = [C, "10.79.0.3", "10.79.0.4"]


def asking():
    socks = [new() for _ in HOSTS]
    for s, ip in zip(socks, HOSTS):
        s.setblocking(False)
        s.connect_ex((ip, 9))
    check("two hosts are asked, the third is not", carrier(socks[2]), (BY_TCP, ASKING))
    check("the others wait", [carrier(s)[0] == BY_TCP for s in socks[:2]], [False, False])


def known():
    there = listener(TCP, (C, 0), "C")
    for why in (SLOW, KNOWN):
        s = new()
        s.connect(there.getsockname())
        check(f"a host without ZRS, {why}", carrier(s), (BY_TCP, why))


def zrs(*what):
    return json.loads(subprocess.run(["zrs", *what, "--json"], check=True, capture_output=True, text=True).stdout)


def links(ip):
    """The state of each link to a host, by its number."""
    return {link["id"]: link["state"] for link in zrs("links")["links"] if link["remote"] == ip}


def wait(what, seconds):
    late = time.monotonic() + seconds * PATIENCE
    while not what() and time.monotonic() < late:
        time.sleep(0.1)
    return what()


def remembered():
    return zrs("stats")["tcp"]["known"]


def again():
    there = listener(TCP, (C, 0), "C")
    s = new()
    s.connect(there.getsockname())
    began = time.monotonic()
    check("a host without ZRS", carrier(s)[0], BY_TCP)
    check("the attempt at a link ends", wait(lambda: not links(C), 150), True)
    time.sleep(max(0, began + 61 - time.monotonic()))
    # One that waited for an answer would wait so long.
    with open(PARAMETERS + "fallback_ms", "w") as f:
        f.write("60000")
    began = time.monotonic()
    s = new()
    s.settimeout(100)
    s.connect(there.getsockname())
    check("a minute later: TCP, by what was known", carrier(s), (BY_TCP, KNOWN))
    check("at once", time.monotonic() - began < 30, True)
    wait(lambda: links(C), 20)
    asked = links(C)
    check("a link is tried behind it", len(asked), 1)
    s = new()
    s.connect(there.getsockname())
    check("the next one uses TCP, too", carrier(s), (BY_TCP, KNOWN))
    check("and asks no more", set(links(C)) <= set(asked), True)


def slow():
    with host("B"):
        there = new(AUTO)
    there.bind((B, 0))
    there.listen(8)
    s = new()
    s.connect(there.getsockname())
    check("the link was not up in time", carrier(s), (BY_TCP, SLOW))
    check("it is made all the same", wait(lambda: "UP" in links(B).values(), 60), True)
    check("the host is not remembered any more", wait(lambda: remembered() == 0, 20), True)
    with open(PARAMETERS + "fallback_ms", "w") as f:
        f.write("10000")
    s = new()
    s.connect(there.getsockname())
    check("the next connection is ZRS", carrier(s), (BY_ZRS, 0))


def many():
    most = 1024
    resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))
    there = [listener(TCP, (B, 0)) for _ in range(most + 300)]
    # Its port is one that TCP does not have: ZRS has ports of its own.
    taken = {web.getsockname()[1] for web in there}
    while (keep := listener(ZRS, (B, 0))).getsockname()[1] in taken:
        pass
    s = new()
    s.connect(keep.getsockname())
    check("a link to the host", carrier(s), (BY_ZRS, 0))
    seen = set()
    for web in there:
        s = new()
        s.connect(web.getsockname())
        seen.add(carrier(s))
        s.close()
    check(f"{len(there)} ports without ZRS", seen, {(BY_TCP, NO_LISTENER)})
    count = remembered()
    check(f"no more than {most} are remembered, and most of these", most * 3 // 4 < count <= most, True)
    s = new()
    s.connect(keep.getsockname())
    check("ZRS is used as before", carrier(s), (BY_ZRS, 0))


if __name__ == "__main__":
    {"asking": asking, "known": known, "again": again, "slow": slow, "many": many}[sys.argv[1]]()
