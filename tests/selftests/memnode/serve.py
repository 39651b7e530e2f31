#!/usr/bin/python3
"""Nodes as the command zrs does not serve them.
  serve.py huge NODE       of huge pages, from the middle of one on; says "serving", and serves until it is killed
  serve.py drained NODE    poll() says so when it is drained: when it takes no regions and has none
  serve.py together COUNT  as many at once, by threads, again and again, and when the host of earlier ones is about to end
(NODE: number of the node in domain 1)
"""
import errno
import fcntl
import os
import select
import signal
import struct
import subprocess
import sys
import threading
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from hosts import PATIENCE

SERVE, OPEN_TO_ALL = 1 << 30 | 72 << 16 | 0xE7 << 8 | 0x10, 1
HUGE, PAGE, ROUNDS = 2 << 20, 4096, 12
device = os.open("/dev/zrs", os.O_RDWR)


def serve(node, memory, offset, length):
    request = struct.pack("<IIiIQQ16sIIQQ", 1, node, memory, OPEN_TO_ALL, offset, length, b"", 100, 0, 0, 0)
    return fcntl.ioctl(device, SERVE, bytearray(request))


if sys.argv[1] == "huge":
    memory = os.memfd_create("node", os.MFD_HUGETLB)
    os.ftruncate(memory, 4 * HUGE)
    served = serve(int(sys.argv[2]), memory, PAGE, 3 * HUGE)
    print("serving", flush=True)
    signal.pause()

memory = os.memfd_create("node")
os.ftruncate(memory, PAGE)
if sys.argv[1] == "drained":
    def zrs(*args):
        return subprocess.run(["zrs", "mem", *args], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()

    name = f"1:{sys.argv[2]}"
    served = serve(int(sys.argv[2]), memory, 0, PAGE)
    poll = select.poll()
    poll.register(served, select.POLLPRI)
    seen = [poll.poll(0)]
    region = zrs("alloc", name, str(PAGE))
    zrs("drain", name)
    seen.append(poll.poll(100))
    threading.Timer(0.5, zrs, ("free", region)).start()
    said = poll.poll(20000 * PATIENCE)
    print("ok - no POLLPRI before" if seen == [[], []] else f"not ok - before: {seen}")
    print("ok - POLLPRI when it is drained" if said == [(served, select.POLLPRI)] else f"not ok - drained: {said}")
    sys.exit(0)
found = set()


def one(node, begun, served):
    begun.wait()
    try:
        served.append(serve(node, memory, 0, PAGE))
    except OSError as e:
        found.add(errno.errorcode[e.errno])


def together(nodes):
    served = []
    begun = threading.Barrier(len(nodes))
    threads = [threading.Thread(target=one, args=(n, begun, served)) for n in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for fd in served:
        os.close(fd)


# Each time in a namespace that has no host yet.
fails = 0
for _ in range(ROUNDS):
    child = os.fork()
    if child == 0:
        os.unshare(os.CLONE_NEWNET)
        together(range(100, 100 + int(sys.argv[2])))
        if found:
            print(f"# at once: {sorted(found)}", flush=True)
        os._exit(len(found))
    fails += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0
# The host ends after a second without a node.
for n in range(8):
    together([100])
    time.sleep(0.98 + 0.02 * n)
print(("not ok" if fails else "ok") + f" - nodes that are served at once: {fails} of {ROUNDS} rounds fail")
print(("not ok" if found else "ok") + f" - and while their host ends: {sorted(found)}")
