#!/usr/bin/python3
"""What systemd does for a service with a descriptor store: runs CMD, keeps the descriptors that it stores, and starts
it again with them when it was killed.
  store.py CMD...
Says "stored NAME", "ready", and on each line of stdin kills CMD and starts it again.
"""
import ctypes
import fcntl
import os
import signal
import socket
import sys
import tempfile

PR_SET_PDEATHSIG = 1
place = tempfile.mkdtemp()
manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
manager.bind(place + "/notify")
stored = []


def given():
    # In the child, before exec: the stored descriptors from 3 on. It ends with this process.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.environ["NOTIFY_SOCKET"] = place + "/notify"
    os.environ["LISTEN_PID"] = str(os.getpid())
    os.environ["LISTEN_FDS"] = str(len(stored))
    os.environ["LISTEN_FDNAMES"] = ":".join(name for name, _ in stored)
    for n, (_, fd) in enumerate(stored):
        os.dup2(fd, 3 + n)


def start():
    pid = os.fork()
    if pid == 0:
        given()
        os.execvp(sys.argv[1], sys.argv[1:])
    while True:
        text, fds, _, _ = socket.recv_fds(manager, 4096, 4)
        lines = text.decode().split("\n")
        if "FDSTORE=1" in lines:
            name = next(line.removeprefix("FDNAME=") for line in lines if line.startswith("FDNAME="))
            # Above all that are given.
            stored.append((name, fcntl.fcntl(fds[0], fcntl.F_DUPFD_CLOEXEC, 20)))
            os.close(fds[0])
            print("stored", name, flush=True)
        if "READY=1" in lines:
            print("ready", flush=True)
            return pid


child = start()
for _ in sys.stdin:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    child = start()
