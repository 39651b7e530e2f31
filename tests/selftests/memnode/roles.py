#!/usr/bin/python3
"""Tells which messages of memory links pass the bridge, in their order: a line "A>B ask ALLOC", "B>A answer ALLOC", "A>B WRITE" or
"B>A READ" each; what follows on the same pair is told once. Ends by SIGTERM.
"""
import signal
import socket

HOSTS = {f"10.77.0.{n}": name for n, name in ((1, "A"), (2, "B"), (3, "C"))}
TYPES = {49: "ask", 50: "answer", 51: "revoke", 52: "revoked"}
OPS = "- ALLOC FREE INFO KEY UNKEY SEAL OPEN CLOSE PUT GET WROTE COPY CANCEL".split()
# Of a reliable connection: the first or only packet of a SEND (0x17: with an invalidation), of a WRITE, and a READ's request.
SENDS, WRITES, READ = {0, 4, 0x17}, {6, 0xA}, {0xC}
OUTGOING = 4

sniffer = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
sniffer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 20)
# What has passed is told before the end.
signal.signal(signal.SIGTERM, lambda *_: sniffer.setblocking(False))
print("listening", flush=True)
last = None
while True:
    try:
        packet, (_, _, kind, *_) = sniffer.recvfrom(16384)
    except BlockingIOError:
        break
    # Each packet comes in by one port of the bridge, and goes out by another one.
    if kind == OUTGOING or packet[12:14] != b"\x08\x00" or packet[23] != socket.IPPROTO_UDP:
        continue
    udp = 14 + 4 * (packet[14] & 15)
    if int.from_bytes(packet[udp + 2 : udp + 4], "big") != 4791:
        continue
    pair = ">".join(HOSTS.get(socket.inet_ntoa(packet[at : at + 4]), "?") for at in (26, 30))
    opcode, message = packet[udp + 8], packet[udp + 20 :]
    if opcode == 0x17:
        message = message[4:]
    if opcode in WRITES:
        line = f"{pair} WRITE"
    elif opcode in READ:
        line = f"{pair} READ"
    elif opcode in SENDS and message[1] in TYPES:
        op = int.from_bytes(message[12:14], "little")
        line = f"{pair} {TYPES[message[1]]} {OPS[op] if op < len(OPS) else op}"
    else:
        continue
    if line != last:
        print(line, flush=True)
    last = line
