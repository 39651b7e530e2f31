#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Datagrams of one of two machines; prints what it does, line by line.

  datagrams.py serve ADDRESS PORT            sends each datagram back, until it is killed
  datagrams.py ask ADDRESS PORT NUMBER       sends datagrams of many sizes, each after the answer to the one before
  datagrams.py lost ADDRESS PORT SECONDS     sends until the peer is lost; then says with which error, and how long the
                                             longest call took
  datagrams.py flood ADDRESS PORT SECONDS    sends for so long; prints how many were sent and how many counted as dropped
"""

import errno
import select
import socket
import struct
import sys
import time

ZRS, SOL_ZRS, ZRS_DGRAM_INFO = 253, 0x5A52, 17
SIZES = (0, 1, 100, 4096, 4097, 16384, 20000, 65507)


def new():
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM, ZRS)


def tx_drops(s):
    return struct.unpack("=2I7Q6I", s.getsockopt(SOL_ZRS, ZRS_DGRAM_INFO, 168)[:88])[11]


def serve(address, port):
    s = new()
    s.bind((address, port))
    print("listening on", flush=True)
    while True:
        data, peer = s.recvfrom(70000)
        try:
            s.sendto(data, peer)
        except OSError as e:
            print(f"an answer: {errno.errorcode[e.errno]}", flush=True)


def ask(address, port, number):
    s = new()
    s.connect((address, port))
    for n in range(number):
        data = bytes([n % 251]) * SIZES[n % len(SIZES)]
        for attempt in range(10):
            try:
                s.send(data)
                if select.select([s], [], [], 10)[0]:
                    break
            except OSError as e:
                # The link of before the fault is lost, or the machine is not up yet.
                print(f"attempt {attempt}: {errno.errorcode[e.errno]}", flush=True)
                time.sleep(1)
        # Answers to earlier attempts may come as well.
        while (got := s.recv(70000)) != data and select.select([s], [], [], 10)[0]:
            pass
        if got != data:
            sys.exit(f"{len(got)} bytes for {len(data)}")
    print(f"{number} answered", flush=True)


def lost(address, port, seconds):
    s = new()
    s.connect((address, port))
    s.send(b"first")
    if not select.select([s], [], [], 30)[0]:
        sys.exit("no answer")
    s.recv(10)
    print("sending", flush=True)
    longest, late = 0, time.monotonic() + seconds
    while time.monotonic() < late:
        before = time.monotonic()
        try:
            s.send(bytes(1000))
        except OSError as e:
            print(f"{errno.errorcode[e.errno]}, the longest call took {longest:.2f} s", flush=True)
            sys.exit(0 if e.errno == errno.EHOSTUNREACH else 1)
        longest = max(longest, time.monotonic() - before)
        time.sleep(0.01)
    sys.exit("no error")


def flood(address, port, seconds):
    s = new()
    s.connect((address, port))
    sent, late = 0, time.monotonic() + seconds
    print("sending", flush=True)
    while time.monotonic() < late:
        try:
            s.send(struct.pack("I", sent) + bytes(996))
            sent += 1
        except OSError as e:
            print(f"{errno.errorcode[e.errno]}", flush=True)
            time.sleep(0.1)
    print(f"{sent} sent, {tx_drops(s)} dropped", flush=True)
    sys.exit(0 if 0 < tx_drops(s) < sent else 1)


{"serve": serve, "ask": ask, "lost": lost, "flood": flood}[sys.argv[1]](sys.argv[2], *map(int, sys.argv[3:]))
