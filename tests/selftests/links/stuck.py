#!/usr/bin/python3
"""A reader whose memory does not come: recv() copies to a page whose fault waits for ever (userfaultfd).
  stuck.py ADDRESS PORT     prints "listening on" and the port, takes a connection, and stays in recv()
"""
import ctypes
import fcntl
import mmap
import os
import socket
import struct
import sys

ZRS = 253
USERFAULTFD, API, REGISTER = 323, 0xC018AA3F, 0xC020AA00

memory = mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
faults = ctypes.CDLL(None, use_errno=True).syscall(USERFAULTFD, os.O_CLOEXEC)
if faults < 0:
    sys.exit(f"userfaultfd: {os.strerror(ctypes.get_errno())}")
fcntl.ioctl(faults, API, bytearray(struct.pack("<QQQ", 0xAA, 0, 0)))
fcntl.ioctl(faults, REGISTER, bytearray(struct.pack("<QQQQ", at, mmap.PAGESIZE, 1, 0)))

listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, ZRS)
listener.bind((sys.argv[1], int(sys.argv[2])))
listener.listen()
print(f"listening on {sys.argv[2]}", flush=True)
connection = listener.accept()[0]
sys.exit(f"recv() gave {connection.recv_into(memory)}")
