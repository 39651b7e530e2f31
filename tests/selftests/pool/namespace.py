#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Rings of sockets in hosts A and B whose connections are over, with data that was not read."""

import json
import os
import socket
import struct
import subprocess
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from hosts import SOL_ZRS, ZRS, becomes, check, fails, host

ZRS_RX_RING, ZRS_INFO = 1, 2
INFO_LINK = 104  # offset of zrs_info.link
RING = bytes(56)  # struct zrs_rx_ring
ADDR = {"A": os.environ["ADDR_A"], "B": os.environ["ADDR_B"]}
OTHER = {"A": "B", "B": "A"}


def new(name):
    with host(name):
        return socket.socket(socket.AF_INET, socket.SOCK_STREAM, ZRS)


def over(name):
    """A socket in a host whose connection has ended in both directions, and has left its link."""
    listener = new(name)
    listener.bind((ADDR[name], 0))
    listener.listen()
    peer = new(OTHER[name])
    peer.connect(listener.getsockname())
    s, _ = listener.accept()
    peer.sendall(b"unread")
    peer.close()
    s.shutdown(socket.SHUT_WR)
    link = lambda: struct.unpack_from("I", s.getsockopt(SOL_ZRS, ZRS_INFO, 256), INFO_LINK)[0]
    if becomes(link, 0):
        raise SystemExit(f"not ok - the connection in {name} stays on its link")
    return s


def windows():
    """Windows of each device."""
    said = subprocess.run(["zrs", "pool", "--json"], check=True, capture_output=True, text=True).stdout
    return {pool["device"]: pool["windows"] for pool in json.loads(said)["pools"]}


def ring(s):
    s.setsockopt(SOL_ZRS, ZRS_RX_RING, RING)


for name in "A", "B":
    with over(name) as s:
        check(f"a ring in {name}", fails(ring, s), "no error")
        check(f"its window is of {name}'s device", windows(), {"rxeA": int(name == "A"), "rxeB": int(name == "B")})
    check("it is the pool's again", becomes(windows, {"rxeA": 0, "rxeB": 0}), {"rxeA": 0, "rxeB": 0})

with over("B") as s:
    subprocess.run(["rdma", "link", "delete", "rxeB"], check=True)
    check("without a device in B there is no ring", fails(ring, s), "ENOTCONN")
    check("and no window", windows(), {"rxeA": 0})
    check("what arrived is there", s.recv(100), b"unread")
