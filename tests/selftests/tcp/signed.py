#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Under `zrs run`: a socket with a key of TCP_MD5SIG reaches a listener that has the key, and none
that has not, at an address that a rule leaves to TCP: signed.py ADDRESS. Port 7400 is used.

Prints a line for each thing it looked at.
"""

import os
import socket
import struct
import sys

TCP_MD5SIG = 14
HERE = sys.argv[1]
SCALE = int(os.environ.get("TIME_SCALE", "1"))


def check(name, seen, want):
    if seen == want:
        print(f"ok - {name}", flush=True)
    else:
        print(f"not ok - {name}: expected {want}, got {seen}", flush=True)


def sign(s):
    peer = struct.pack("=HH4s120x", socket.AF_INET, 0, socket.inet_aton(HERE))
    key = b"a secret"
    s.setsockopt(socket.IPPROTO_TCP, TCP_MD5SIG, peer + struct.pack("=BBHi80s", 0, 0, len(key), 0, key))


def connects(server_signs, client_signs):
    with socket.socket() as there, socket.socket() as s:
        there.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if server_signs:
            sign(there)
        there.bind((HERE, 7400))
        there.listen(1)
        if client_signs:
            sign(s)
        # One that has an answer may take longer than the time for which the others are looked at.
        s.settimeout((20 if server_signs == client_signs else 2) * SCALE)
        try:
            s.connect((HERE, 7400))
        except OSError as e:
            return type(e).__name__
        return "connected"


check(f"{HERE}: no keys", connects(False, False), "connected")
check(f"{HERE}: both have the key", connects(True, True), "connected")
check(f"{HERE}: the client alone has it", connects(False, True), "TimeoutError")
check(f"{HERE}: the server alone has it", connects(True, False), "TimeoutError")
