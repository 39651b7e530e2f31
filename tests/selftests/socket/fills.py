#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""fills.py IP PORT CONNS BYTES FILE: connects, says "opened", and sends that much by each connection when FILE is there,
in messages that stay in blocks."""

import os
import signal
import socket
import sys
import time

IPPROTO_ZRS, MESSAGE = 253, 1000

ip, port, conns, size, go = sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5]
opened = []
for _ in range(conns):
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_ZRS)
    s.connect((ip, port))
    opened.append(s)
print("opened", flush=True)
while not os.path.exists(go):
    time.sleep(0.05)
for s in opened:
    for _ in range(size // MESSAGE):
        s.sendall(bytes(MESSAGE))
print("sent", flush=True)
signal.pause()
