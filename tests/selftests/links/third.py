#!/usr/bin/python3
"""What a user may do to others' connects, and how a third user fares.
  third.py server            in host B: takes all that a connection sends, and answers with its digest; sends without end
                             where the first byte is "s"
  third.py ATTACK            in host A, as root: a user begins the attack, says by how many sockets, and stays
  third.py file ADDRESS S    sends a MiB there and has the digest back: three times, or until it takes less than S seconds
ATTACK: sixteen, subordinate, unread, stalled, storm.
"""
import ctypes
import fcntl
import hashlib
import mmap
import os
import socket
import struct
import sys
import threading
import time

ZRS, PORT, USER = 253, 7000, 65534
CLONE_NEWUSER = 0x10000000
USERFAULTFD, API, REGISTER = 323, 0xC018AA3F, 0xC020AA00
libc = ctypes.CDLL(None, use_errno=True)


def sock():
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM, ZRS)


def served(c):
    digest, first = hashlib.sha256(), True
    with c:
        try:
            while part := c.recv(1 << 18):
                if first and part[:1] == b"s":
                    while True:
                        c.send(bytes(4000))
                first = False
                digest.update(part)
            c.send(digest.digest())
        except OSError:
            pass


def server():
    s = sock()
    s.bind(("0.0.0.0", PORT))
    s.listen(64)
    print("listening", flush=True)
    while True:
        threading.Thread(target=served, args=(s.accept()[0],), daemon=True).start()


def file(address, limit):
    data = bytes(range(256)) * 4096
    for _ in range(3):
        began = time.monotonic()
        try:
            s = sock()
            s.settimeout(limit)
            s.connect((address, PORT))
            s.sendall(data)
            s.shutdown(socket.SHUT_WR)
            right = s.recv(64) == hashlib.sha256(data).digest()
        except OSError as e:
            print(f"# {e}", flush=True)
            time.sleep(0.2)
            continue
        took = time.monotonic() - began
        print(f"# {'right' if right else 'wrong'} in {took:.2f} s", flush=True)
        if right and took <= limit:
            sys.exit(0)
    sys.exit(1)


def become(uid):
    os.setgroups([])
    os.setresuid(uid, uid, uid)


def connections(first, count, ask=None):
    """Connections to that many addresses of B, as many as there are."""
    kept = []
    for n in range(first, first + count):
        s = sock()
        s.settimeout(5)
        try:
            s.connect((f"10.77.0.{n}", PORT))
            if ask:
                s.send(ask)
            kept.append(s)
        except OSError as e:
            print(f"# {e}", flush=True)
    return kept


def stall(s):
    memory = mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    faults = libc.syscall(USERFAULTFD, os.O_CLOEXEC)
    if faults < 0:
        sys.exit("userfaultfd")
    fcntl.ioctl(faults, API, bytearray(struct.pack("<QQQ", 0xAA, 0, 0)))
    fcntl.ioctl(faults, REGISTER, bytearray(struct.pack("<QQQQ", at, mmap.PAGESIZE, 1, 0)))
    threading.Thread(target=s.recv_into, args=(memory,), daemon=True).start()
    return memory, faults


def subordinates():
    """Two users of a user namespace that USER has made."""
    for n in range(2):
        made, mapped = os.pipe(), os.pipe()
        child = os.fork()
        if child == 0:
            become(USER)
            if libc.unshare(CLONE_NEWUSER):
                os.write(made[1], b"-")
                os._exit(1)
            os.write(made[1], b"x")
            os.read(mapped[0], 1)
            os.setresuid(n, n, n)
            kept = connections(50 + 8 * n, 8)
            os.write(made[1], bytes([len(kept)]))
            time.sleep(600)
            os._exit(0)
        if os.read(made[0], 1) != b"x":
            sys.exit("no user namespace")
        with open(f"/proc/{child}/uid_map", "w", encoding="ascii") as uid_map:
            uid_map.write("0 200000 2\n")
        os.write(mapped[1], b"x")
        yield os.read(made[0], 1)[0]


role = sys.argv[1]
if role == "server":
    server()
if role == "file":
    file(sys.argv[2], float(sys.argv[3]))
kept = []
if role == "subordinate":
    count = sum(subordinates())
else:
    # The sockets are the user's; userfaultfd may be the administrator's alone.
    os.seteuid(USER)
    if role == "storm":
        for n in range(101, 117):
            s = sock()
            s.setblocking(False)
            s.connect_ex((f"10.77.0.{n}", PORT))
            kept.append(s)
    else:
        kept = connections(50, 16, b"s" if role in ("unread", "stalled") else None)
    count = len(kept)
    if role == "stalled":
        os.seteuid(0)
        kept.append([stall(s) for s in kept])
time.sleep(1)
print(f"attacking by {count} sockets", flush=True)
time.sleep(600)
