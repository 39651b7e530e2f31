#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Eight connections that send in rounds what their reader leaves unread for a while.
  unread.py listen ADDRESS PORT
  unread.py send ADDRESS PORT
"""
import socket
import sys
import time

CONNECTIONS, ROUNDS, SIZE, UNREAD = 8, 4, 48 << 10, 2.0
how, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])


def zrs():
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM, 253)


if how == "listen":
    listener = zrs()
    listener.bind((address, port))
    listener.listen(CONNECTIONS)
    print("ready", flush=True)
    connections = [listener.accept()[0] for _ in range(CONNECTIONS)]
    for _ in range(ROUNDS):
        time.sleep(UNREAD)
        for c in connections:
            assert len(c.recv(SIZE, socket.MSG_WAITALL)) == SIZE
            c.sendall(b"!")
else:
    connections = []
    for _ in range(CONNECTIONS):
        connections.append(zrs())
        connections[-1].connect((address, port))
    for _ in range(ROUNDS):
        for c in connections:
            c.sendall(bytes(SIZE))
        for c in connections:
            assert c.recv(1) == b"!"
