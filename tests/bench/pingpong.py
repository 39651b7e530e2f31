#!/usr/bin/python3
"""Round trips of datagrams of 64 bytes, by blocking calls.
  pingpong.py zrs|rds|udp serve ADDRESS           answers for ever
  pingpong.py zrs|rds|udp ask ADDRESS COUNT       prints the median round trip in microseconds
"""
import socket
import statistics
import sys
import time

PORT, SIZE = 7900, 64
kind, role, address = sys.argv[1:4]
if kind == "rds":
    sock = socket.socket(socket.AF_RDS, socket.SOCK_SEQPACKET)
else:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 253 if kind == "zrs" else 0)
if role == "serve":
    sock.bind((address, PORT))
    while True:
        data, sender = sock.recvfrom(SIZE)
        sock.sendto(data, sender)
# RDS wants to be bound before it sends: to the address that leads to the other host.
probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
probe.connect((address, PORT))
sock.bind((probe.getsockname()[0], PORT + 1))
sock.settimeout(20)
times = []
for n in range(int(sys.argv[4])):
    data = n.to_bytes(8, "little") * (SIZE // 8)
    begin = time.perf_counter_ns()
    sock.sendto(data, (address, PORT))
    while sock.recvfrom(SIZE)[0] != data:
        pass
    times.append(time.perf_counter_ns() - begin)
print(round(statistics.median(times) / 1000, 2))
