#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""A program that keeps a socket's lock: getsockopt() copies an option to memory whose page fault waits for ever
(userfaultfd), under the lock of the TCP socket inside a ZRS socket whose connect() is under way.

  stuck.py SILENT     prints "stuck" when the call is, and stays

No packet to the address SILENT is answered, so that the connect falls back to TCP after fallback_ms.
"""

import ctypes
import errno
import fcntl
import mmap
import os
import select
import socket
import struct
import sys
import threading

ZRS, SOL_ZRS, ZRS_TCP, AUTO = 253, 0x5A52, 3, 1
IPV6_2292PKTOPTIONS, IPV6_HOPOPTS = 6, 54
USERFAULTFD, API, REGISTER = 323, 0xC018AA3F, 0xC020AA00
PAGE = mmap.PAGESIZE
libc = ctypes.CDLL(None, use_errno=True)

memory = mmap.mmap(-1, PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
faults = libc.syscall(USERFAULTFD, os.O_CLOEXEC)
if faults < 0:
    sys.exit(f"userfaultfd: {os.strerror(ctypes.get_errno())}")
fcntl.ioctl(faults, API, bytearray(struct.pack("<QQQ", 0xAA, 0, 0)))
fcntl.ioctl(faults, REGISTER, bytearray(struct.pack("<QQQQ", at, PAGE, 1, 0)))

s = socket.socket(socket.AF_INET6, socket.SOCK_STREAM, ZRS)
s.setsockopt(SOL_ZRS, ZRS_TCP, AUTO)
# Hop-by-hop options of padding: the TCP socket inside has something to copy.
padding = bytes([0, 0, 1, 4, 0, 0, 0, 0])
s.setsockopt(socket.IPPROTO_IPV6, IPV6_2292PKTOPTIONS,
             struct.pack("<Qii", 16 + len(padding), socket.IPPROTO_IPV6, IPV6_HOPOPTS) + padding)
s.setblocking(False)
begun = s.connect_ex(("::ffff:" + sys.argv[1], 7000))
if begun != errno.EINPROGRESS:
    sys.exit(f"connect: {os.strerror(begun)}")


def get():
    room = ctypes.c_uint32(len(padding))
    done = libc.getsockopt(s.fileno(), socket.IPPROTO_IPV6, IPV6_HOPOPTS, ctypes.c_void_p(at), ctypes.byref(room))
    print(f"getsockopt: {done}, {os.strerror(ctypes.get_errno())}", flush=True)


threading.Thread(target=get, daemon=True).start()
if not select.select([faults], [], [], 30)[0]:
    sys.exit("getsockopt does not fault")
print("stuck", flush=True)
threading.Event().wait()
