#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Connects of host A to host C, which has no ZRS.

  cache.py asking   as a user: how many hosts are asked at a time
  cache.py known    what is remembered
"""

import sys

from connect import BY_TCP, C, KNOWN, SLOW, TCP, carrier, check, host, listener, new

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


if __name__ == "__main__":
    {"asking": asking, "known": known}[sys.argv[1]]()
