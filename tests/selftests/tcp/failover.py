#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Connections of host A, over a bond, whose other port takes over.

Soft-RoCE's queue pair 1 may not survive a DREQ that is sent in that moment (tests/findings/qp1), so no new link is
asked for here.
"""

import subprocess

from cache import links, remembered
from connect import B, BY_TCP, BY_ZRS, C, KNOWN, TCP, ZRS, carrier, check, fails, listener, new
from hosts import becomes


def connected(to):
    s = new()
    s.connect(to.getsockname())
    return s


there, web = listener(ZRS, (B, 0)), listener(TCP, (C, 0), "C")
s = connected(there)
check("a host with ZRS", carrier(s), (BY_ZRS, 0))
check("a host without", carrier(connected(web))[0], BY_TCP)
check("it is remembered", carrier(connected(web)), (BY_TCP, KNOWN))
before = links(B)
subprocess.run(["ip", "link", "set", "bond0", "type", "bond", "active_slave", "va2"], check=True)
check("nothing is remembered any more", becomes(remembered, 0), 0)
check("the link over the bond ends", becomes(lambda: before.keys() & links(B).keys(), set()), set())
check("and with it the connection", fails(s.recv, 1), "ECONNRESET")
check("the host without is asked again", carrier(connected(web)) == (BY_TCP, KNOWN), False)
