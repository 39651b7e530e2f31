#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Programs of datagrams for apps/dgram.sh.

  dgram.py echo ADDRESS PORT             a server on asyncio: sends each datagram back
  dgram.py ask ADDRESS PORT FILE         a client on asyncio: datagrams of many sizes, one after the other, at least 200
                                         and until FILE is there; all must come back as they were
  dgram.py memcached ADDRESS PORT FILE   a client of memcached by its binding to UDP: values are set and read back, some of
                                         which take several datagrams; for as long
  dgram.py iperf FILE DROPS              what iperf3 -u -J has said: what was sent was received, but for DROPS datagrams

The clients print the number of bytes that they sent.
"""

import asyncio
import json
import os
import random
import socket
import struct
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from hosts import PATIENCE

LEAST, SIZES = 200, (0, 1, 100, 1472, 1473, 4096, 4097, 9000)


class Echo(asyncio.DatagramProtocol):
    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, addr):
        self.transport.sendto(data, addr)


class Asker(asyncio.DatagramProtocol):
    def __init__(self):
        self.answers = asyncio.Queue()

    def datagram_received(self, data, addr):
        self.answers.put_nowait(data)

    def error_received(self, exc):
        self.answers.put_nowait(exc)


async def echo(address, port):
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(Echo, (address, int(port)))
    print("listening on", transport.get_extra_info("sockname"), flush=True)
    await asyncio.Event().wait()


async def ask(address, port, enough):
    loop = asyncio.get_running_loop()
    transport, asker = await loop.create_datagram_endpoint(Asker, remote_addr=(address, int(port)))
    n = sent = 0
    while n < LEAST or not os.path.exists(enough):
        data = random.randbytes(SIZES[n % len(SIZES)])
        transport.sendto(data)
        back = await asyncio.wait_for(asker.answers.get(), 20 * PATIENCE)
        assert back == data, (n, len(data), back if isinstance(back, Exception) else len(back))
        n, sent = n + 1, sent + len(data)
    print(sent)


def request(s, number, text):
    """The answer to a request of one datagram: its datagrams say how many they are, and may overtake each other."""
    s.send(struct.pack("!4H", number, 0, 1, 0) + text)
    parts, total = {}, 1
    while len(parts) < total:
        data = s.recv(70000)
        of, at, total, zero = struct.unpack("!4H", data[:8])
        assert (of, zero) == (number, 0) and at < total and at not in parts, (number, of, at, total, zero)
        parts[at] = data[8:]
    return b"".join(parts[at] for at in range(total)), total


def memcached(address, port, enough):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(20 * PATIENCE)
    s.connect((address, int(port)))
    n = sent = several = 0
    while n < LEAST or not os.path.exists(enough):
        value = random.randbytes((1, 100, 1000, 5000)[n % 4])
        answer, _ = request(s, 2 * n % 65536, b"set key%d 0 0 %d\r\n%b\r\n" % (n, len(value), value))
        assert answer == b"STORED\r\n", (n, answer)
        answer, total = request(s, (2 * n + 1) % 65536, b"get key%d\r\n" % n)
        assert answer == b"VALUE key%d 0 %d\r\n%b\r\nEND\r\n" % (n, len(value), value), (n, len(value), answer)
        n, sent, several = n + 1, sent + len(value), several + (total > 1)
    assert several > 0
    print(sent)


def iperf(file, drops):
    with open(file, encoding="utf-8") as result:
        end = json.load(result)["end"]
    sent, received, drops = end["sum_sent"], end["sum_received"], int(drops)
    # The server stops reading when the client has sent all: "packets" is the number of the last datagram that it has
    # read, and "lost_packets" those before that one that it has not.
    unread, lost = sent["packets"] - received["packets"], received["lost_packets"]
    print(f"{sent['packets']} sent, {lost} lost, {drops} counted, {unread} not read in the end; {sent['bits_per_second']:.0f} bit/s")
    assert sent["packets"] > 5000 and received["packets"] > 0 and unread >= 0, (sent, received)
    assert drops - unread <= lost <= drops, (sent, received, drops)


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    done = {"echo": echo, "ask": ask, "memcached": memcached, "iperf": iperf}[what](*words)
    if done:
        asyncio.run(done)
