#!/usr/bin/python3
"""Allocates regions of a node by a broker, uses and frees them, by two threads until SIGTERM.
  brokers.py VIA NODE     (numbers of nodes in domain 1; VIA 0: without a broker)
Says "served" or an error, each time that the result is another one than before, and at its end how often it was served, and the
errors. A third thread keeps a region, and says "held:" and the error when it is gone.
"""
import errno
import fcntl
import os
import signal
import struct
import sys
import threading

ALLOC, VIA, SIZE = 3 << 30 | 96 << 16 | 0xE7 << 8 | 0x12, 2, 65536
via, node = (int(arg) for arg in sys.argv[1:])
device = os.open("/dev/zrs", os.O_RDWR)
request = struct.pack("<IIQQII16s32sIIQ", 1, node, SIZE, 0, VIA if via else 0, 0, b"", b"", *((1, via) if via else (0, 0)), 0)
stop = threading.Event()
served, found, last = 0, {}, "none"
lock = threading.Lock()


def holds():
    """Keeps a region until it is gone, and then another one."""
    while not stop.wait(0.1):
        try:
            region = fcntl.ioctl(device, ALLOC, bytearray(request))
        except OSError:
            continue
        try:
            while not stop.wait(0.1):
                os.pread(region, 1, 0)
        except OSError as e:
            print(f"held: {errno.errorcode.get(e.errno, str(e))}", flush=True)
        os.close(region)


def asks():
    global served, last
    while not stop.wait(0.01):
        region, step = -1, "alloc"
        try:
            region = fcntl.ioctl(device, ALLOC, bytearray(request))
            step = "use"
            if os.pwrite(region, b"some", 100) != 4 or os.pread(region, 6, 99) != b"\0some\0":
                raise OSError(0, "other bytes")
            now = "served"
        except OSError as e:
            now = f"{step}: {errno.errorcode.get(e.errno, str(e))}"
        if region >= 0:
            os.close(region)
        with lock:
            served += now == "served"
            if now != "served":
                found[now] = found.get(now, 0) + 1
            if now != last:
                last = now
                print(now, flush=True)


signal.signal(signal.SIGTERM, lambda *_: stop.set())
threads = [threading.Thread(target=work) for work in (asks, asks, holds)]
for thread in threads:
    thread.start()
stop.wait()
for thread in threads:
    thread.join()
print(f"ended: {served} times served, {found}", flush=True)
