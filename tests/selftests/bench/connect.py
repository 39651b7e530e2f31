#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""What connect() costs in mode AUTO, from host A, in relation to TCP's in the same run: to a server with
ZRS, to hosts without, to closed ports. Prints a line for each bound."""

import os
import socket
import statistics
import struct
import sys
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from hosts import host

TCP, ZRS = 6, 253
SOL_ZRS, ZRS_INFO, ZRS_TCP, NEVER, AUTO = 0x5A52, 2, 3, 0, 1
BY_ZRS, BY_TCP = 1, 2
B, C = os.environ["ADDR_B"], os.environ["ADDR_C"]
ROUNDS, WARM = 60, 5
FALLBACK_MS = "/sys/module/zrs/parameters/fallback_ms"


def listener(proto, address, where):
    with host(where):
        s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, proto)
    s.bind((address, 0))
    s.listen(64)
    return s


def connect(mode, at, there=None):
    """Microseconds of a connect(), which is refused where nothing is `there`, and its carrier. Without a mode
    it is a TCP socket."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, TCP if mode is None else ZRS) as s:
        if mode is not None:
            s.setsockopt(SOL_ZRS, ZRS_TCP, mode)
        began = time.perf_counter_ns()
        refused = s.connect_ex(at)
        took = (time.perf_counter_ns() - began) / 1000
        by = struct.unpack_from("II", s.getsockopt(SOL_ZRS, ZRS_INFO, 256), 112) if mode is not None else (BY_TCP, 0)
        if bool(refused) != (there is None):
            print(f"not ok - connect() in mode {mode}: errno {refused}, the carrier and why: {by}", flush=True)
            sys.exit(1)
        if there:
            there.accept()[0].close()
    return took, by[0]


def bound(name, value, most, text):
    print(f"{'ok' if value <= most else 'not ok'} - {name}: {value:.2f}, at most {most}: {text}", flush=True)


def compare(name, most, by, ours, theirs, mode=None):
    """The medians of mode AUTO and of `mode`, in turns. `ours` and `theirs` give an address and a listener,
    if there is one."""
    took = {AUTO: [], mode: []}
    for i in range(ROUNDS + WARM):
        for how, target in ((AUTO, ours), (mode, theirs)):
            us, carrier = connect(how, *target())
            assert how != AUTO or carrier == by, (name, carrier)
            if i >= WARM:
                took[how].append(us)
    auto, other = statistics.median(took[AUTO]), statistics.median(took[mode])
    bound(name, auto / other, most, f"{auto:.0f} us, {other:.0f} us of {'TCP' if mode is None else 'mode NEVER'}")


def at(there):
    return lambda: (there.getsockname(), there)


def closed(address, ports):
    """Another closed port each time, or the same one."""
    return lambda: ((address, next(ports)),)


def always(port):
    while True:
        yield port


both, web, far = listener(ZRS, B, "B"), listener(TCP, B, "B"), listener(TCP, C, "C")
with open(FALLBACK_MS) as f:
    limit = float(f.read())
us, carrier = connect(AUTO, far.getsockname(), far)
assert carrier == BY_TCP
bound("the first connect() to a host without ZRS, of fallback_ms", us / 1000 / limit, 2, f"{us / 1000:.0f} ms")
compare("a later one, of TCP's", 3, BY_TCP, at(far), at(far))
# The first link may take its time, and is no part of the figures.
with open(FALLBACK_MS, "w") as f:
    f.write("10000")
connect(AUTO, both.getsockname(), both)
compare("connect() to a server with ZRS, of mode NEVER's", 2, BY_ZRS, at(both), at(both), NEVER)
# A round trip of emulated Soft-RoCE goes through kernel threads on either side, TCP's through none.
compare("connect() to a server with ZRS, of TCP's", 40, BY_ZRS, at(both), at(web))
compare("connect() to a server without, on a host with ZRS, later, of TCP's", 3, BY_TCP, at(web), at(web))
name = "connect() to closed ports of a host"
compare(f"{name} with ZRS, of TCP's", 100, BY_TCP, closed(B, iter(range(20000, 21000))), closed(B, always(1)))
compare(f"{name} without, of TCP's", 3, BY_TCP, closed(C, always(1)), closed(C, always(1)))
