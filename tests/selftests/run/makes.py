#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Asks for TCP sockets all the while, until it gets SIGTERM. Prints a line whenever the protocol of a new one
is another than before, "error ERRNO" when socket() fails and did not the last time, and at last how many there were."""

import errno
import random
import signal
import socket
import time

NAMES = {6: "tcp", 253: "zrs"}
over, count, last, failing = [], 0, None, False
signal.signal(signal.SIGTERM, lambda *_: over.append(1))
while not over:
    count += 1
    try:
        with socket.socket() as s:
            now = NAMES[s.getsockopt(socket.SOL_SOCKET, socket.SO_PROTOCOL)]
        failing = False
    except OSError as e:
        if not failing:
            print("error", errno.errorcode[e.errno], flush=True)
        failing = True
        continue
    if now != last:
        print(now, flush=True)
        last = now
    # At some moments there is none, so that the module can go.
    time.sleep(random.random() / 200)
print("made", count, flush=True)
