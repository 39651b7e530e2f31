#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Datagrams that are sent from the program's pages, from host A to host B.

  pinned.py CASE CUT MEND      CUT and MEND: commands after which host B cannot be reached, and can again

copies: how many bytes are copied. contents: what arrives, of memory of many kinds and shapes. absent: memory that is
not there. told: MSG_ZEROCOPY, compared with UDP's. waits: senders that wait for the device, and are killed, unmap the
memory, or fork. lost: the link fails while one waits; others are copied meanwhile. dead: only the limit of the wait
ends it."""

import ctypes
import errno
import mmap
import os
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import warnings

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from hosts import check, datagram, fails, meet, PATIENCE, SCALE, UDP, ZRS

SOL, SO_ZEROCOPY, MSG_ZEROCOPY, MSG_ERRQUEUE = socket.SOL_SOCKET, 60, 0x4000000, 0x2000
SO_MEMINFO, MEMINFO_DROPS = 55, 8
ORIGIN_ZEROCOPY, CODE_COPIED = 5, 1
MAP_FIXED, PROT_NONE = 0x10, 0
PAGE, LONGEST, THRESHOLD = 4096, 65507, 16 << 10
STALL = 5  # seconds: dgram_stall_ms
A, B = os.environ["ADDR_A"], os.environ["ADDR_B"]
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
# A process with threads forks here to see what becomes of its memory.
warnings.simplefilter("ignore", DeprecationWarning)
libc.send.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def holds(name, ok, seen=""):
    check(name, True if ok else seen, True)


def copied():
    with open("/sys/module/copycount/parameters/copied") as f:
        return int(f.read())


def counter(name):
    out = subprocess.check_output(["zrs", "stats", "--json"]).decode()
    return int(out.split(f'"{name}":')[1].split(",")[0].split("}")[0])


def kernel_pins():
    """The pages that anyone has pinned, as the kernel counts."""
    with open("/proc/sys/vm/stat_refresh", "w") as f:
        f.write("1")
    with open("/proc/vmstat") as f:
        stat = dict(line.split() for line in f)
    return int(stat["nr_foll_pin_acquired"]) - int(stat["nr_foll_pin_released"])


def pair(proto=ZRS):
    """A sender that blocks, connected to a receiver, with the link between them up."""
    there, s = datagram("B", (B, 0), proto), datagram("A", (A, 0), proto)
    s.connect(there.getsockname())
    meet(s, there)
    # With a time limit, Python's calls do not block.
    s.setblocking(True)
    return there, s


def memory(pages, fd=-1, offset=0):
    """The address of new pages with bytes that differ, and these bytes."""
    data = os.urandom(pages * PAGE)
    if fd >= 0:
        os.pwrite(fd, data, offset)
    private = mmap.MAP_PRIVATE | (mmap.MAP_ANONYMOUS if fd < 0 else 0)
    at = libc.mmap(None, pages * PAGE, mmap.PROT_READ | mmap.PROT_WRITE, private, fd, offset)
    if fd < 0:
        ctypes.memmove(at, data, len(data))
    return at, data


def send(s, at, length, flags=0):
    n = libc.send(s.fileno(), at, length, flags)
    return n if n >= 0 else errno.errorcode[ctypes.get_errno()]


def send_soon(s, at, length, flags):
    """As send(), once there is room."""
    poll = select.poll()
    poll.register(s, select.POLLOUT)
    late = time.monotonic() + 20 * PATIENCE
    while (sent := send(s, at, length, flags)) == "EAGAIN" and time.monotonic() < late:
        poll.poll(1000 * SCALE)
    return sent


def drops(s):
    return struct.unpack("9I", s.getsockopt(SOL, SO_MEMINFO, 36))[MEMINFO_DROPS]


def copies():
    """Of a datagram whose receiver has no room only the sender may copy."""
    full, s = datagram("B", (B, 0), before=lambda s: s.setsockopt(SOL, socket.SO_RCVBUF, 0)), datagram("A", (A, 0))
    s.connect(full.getsockname())
    meet(s, full)
    already = drops(full)
    # An empty queue takes a datagram of any length.
    s.send(bytes(2000))
    s.setblocking(True)
    s.setsockopt(SOL, SO_ZEROCOPY, 1)
    poll = select.poll()
    poll.register(s, select.POLLOUT)
    at, _ = memory(17)
    ways = [("blocking", 0, LONGEST, 0), ("blocking", 0, THRESHOLD, 0), ("blocking", 0, THRESHOLD - 1, 1000),
            ("non-blocking", socket.MSG_DONTWAIT, LONGEST, 1000), ("MSG_ZEROCOPY", MSG_ZEROCOPY, LONGEST, 0),
            ("MSG_ZEROCOPY", MSG_ZEROCOPY | socket.MSG_DONTWAIT, 4097, 0), ("MSG_ZEROCOPY", MSG_ZEROCOPY, 4096, 1000)]
    number = 40
    for name, flags, length, least in ways:
        ours, count = counter("tx_copied"), 0
        before = copied()
        while count < number:
            sent = send(s, at + 100, length, flags)
            count += sent == length
            if sent == "EAGAIN":
                poll.poll(1000 * SCALE)
            elif sent != length:
                check(f"{name}, {length} bytes", sent, length)
                return
        got = (copied() - before) * 1000 // (number * length)
        # Arguments and notifications cost some hundred bytes.
        slack = 5 + 400000 // length
        holds(f"{name}, {length} bytes: {least} of 1000 are copied", least <= got <= least + slack, got)
        ours = (counter("tx_copied") - ours) * 1000 // (number * length)
        check(f"{name}, {length} bytes: and so the module counts", ours, least)
    late = time.monotonic() + 20 * PATIENCE
    while (dropped := drops(full) - already) < number * len(ways) and time.monotonic() < late:
        time.sleep(0.1)
    check("the receiver has counted them", dropped, number * len(ways))


def shapes(file):
    """Name, parts (address and length), and their bytes."""
    at, data = memory(17)
    for length in (THRESHOLD, THRESHOLD + 1, 20000, LONGEST):
        for offset in (0, 1, 100, PAGE - 1):
            yield f"{length} bytes at {offset}", [(at + offset, length)], data[offset:offset + length]
    filed, bytes_ = memory(17, file)
    yield "of a file", [(filed + 50, LONGEST)], bytes_[50:50 + LONGEST]
    yield "a header before it", [(at, 20), (filed + 7, 40000)], data[:20] + bytes_[7:40007]
    third = [(at + n * 3000, 2000) for n in range(20)]
    yield "of 20 pieces", third, b"".join(data[n * 3000:n * 3000 + 2000] for n in range(20))
    many = [(at + n * 1000, 500) for n in range(60)]
    yield "of 60 pieces, which are copied", many, b"".join(data[n * 1000:n * 1000 + 500] for n in range(60))
    for n, how in ((20, "in a row"), (31, "in a row, which are copied")):
        tiny = [(at + i * 10, 5) for i in range(n)] + [(filed, 30000)]
        yield f"of {n} small pieces {how}", tiny, b"".join(data[i * 10:i * 10 + 5] for i in range(n)) + bytes_[:30000]
    yield "the same page again and again", [(at, PAGE)] * 8, data[:PAGE] * 8
    zeros = libc.mmap(None, 17 * PAGE, mmap.PROT_READ, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    yield "never touched", [(zeros, LONGEST)], bytes(LONGEST)


def contents():
    """What arrives is what was there when the call was made: its memory is changed when it has returned."""
    there, s = pair()
    file = os.memfd_create("pinned")
    os.truncate(file, 17 * PAGE)
    before, sent = counter("tx_copied"), 0
    for name, parts, data in shapes(file):
        vec = b"".join(struct.pack("PN", *part) for part in parts)
        box = ctypes.create_string_buffer(vec)
        header = ctypes.create_string_buffer(struct.pack("PIPNPNi4x", 0, 0, ctypes.addressof(box), len(parts), 0, 0, 0))
        n = libc.sendmsg(s.fileno(), header, 0)
        # Only what this program may write.
        held = [(at, ctypes.string_at(at, length)) for at, length in parts if "never" not in name]
        for at, kept in held:
            ctypes.memset(at, 0x55, len(kept))
        got = there.recv(70000)
        for at, kept in held:
            ctypes.memmove(at, kept, len(kept))
        holds(name, n == len(data) and got == data, (n, len(got), got[:8], data[:8]))
        if "copied" in name:
            sent += len(data)
    check("only the datagrams of many pieces were copied", counter("tx_copied") - before, sent)
    at, data = memory(17)
    for k in range(60):
        ctypes.memset(at, k, 40000)
        send(s, at, 40000)
        ctypes.memset(at, 255, 40000)
        got = there.recv(70000)
        if got != bytes([k]) * 40000:
            check(f"datagram {k} of the same memory", got[:4], bytes([k]) * 4)
            break


def absent():
    """Memory that is not there, in the middle or at the end: nothing is sent, and the next datagram arrives."""
    there, s = pair()
    s.setsockopt(SOL, SO_ZEROCOPY, 1)
    there.settimeout(0.5 * SCALE)
    for flags, name in ((0, "blocking"), (MSG_ZEROCOPY, "MSG_ZEROCOPY"), (socket.MSG_DONTWAIT, "non-blocking")):
        for place in (0, 1, 8, 15):
            at, _ = memory(16)
            libc.munmap(at + place * PAGE, PAGE)
            check(f"{name}: page {place} is not there", send_soon(s, at, 16 * PAGE - 30, flags), "EFAULT")
            libc.munmap(at, 16 * PAGE)
        at, _ = memory(16)
        libc.mmap(at + 4 * PAGE, PAGE, PROT_NONE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_FIXED, -1, 0)
        check(f"{name}: a page may not be read", send_soon(s, at, 60000, flags), "EFAULT")
        check(f"{name}: nothing arrives", fails(there.recv, 70000), "time limit")
        at, data = memory(16)
        check(f"{name}: the next is sent", send_soon(s, at, 60000, flags), 60000)
        there.settimeout(20 * PATIENCE)
        holds(f"{name}: and arrives", there.recv(70000) == data[:60000])
        there.settimeout(0.5 * SCALE)
    check("no page is pinned for what failed", [ids for ids, _ in notifications(s, 1)], [[0]])


def notifications(s, number):
    """The numbers and the codes of `number` notifications."""
    late, seen = time.monotonic() + 20 * PATIENCE, []
    poll = select.poll()
    poll.register(s, 0)
    while sum(len(ids) for ids, _ in seen) < number and time.monotonic() < late:
        poll.poll(1000 * SCALE)
        try:
            _, cmsgs, flags, _ = s.recvmsg(100, 200, MSG_ERRQUEUE | socket.MSG_DONTWAIT)
        except BlockingIOError:
            continue
        code, origin, _, how, _, low, high = struct.unpack("IBBBBII", cmsgs[0][2][:16])
        if (code, origin, flags & MSG_ERRQUEUE) != (0, ORIGIN_ZEROCOPY, MSG_ERRQUEUE):
            seen.append(([code, origin, flags], how))
        seen.append((list(range(low, high + 1)), how))
    return seen


def told():
    """MSG_ZEROCOPY with UDP and with ZRS: which calls have a notification, and its number."""
    seen = []
    for proto in (UDP, ZRS):
        there, s = pair(proto)
        free = datagram("A", (A, 0), proto)
        free.setblocking(True)
        at, _ = memory(17)
        ask = MSG_ZEROCOPY
        answers = {"SO_ZEROCOPY": [s.getsockopt(SOL, SO_ZEROCOPY), fails(s.setsockopt, SOL, SO_ZEROCOPY, 2)],
                   "without it": [send(s, at, 5000, ask), there.recv(70000) is not None]}
        s.setsockopt(SOL, SO_ZEROCOPY, 1), free.setsockopt(SOL, SO_ZEROCOPY, 1)
        answers["set"] = s.getsockopt(SOL, SO_ZEROCOPY)
        calls = [(LONGEST, 0), (100, 0), (LONGEST + 1, 0), (0, 0), (5000, socket.MSG_DONTWAIT), (20000, socket.MSG_MORE),
                 (300, 0)]
        answers["results"] = []
        for n, flags in calls:
            done = send(s, at, n, ask | flags)
            answers["results"].append((done, 0 if done != n or flags & socket.MSG_MORE else len(there.recv(70000))))
        answers["without a destination"] = send(free, at, 30000, ask)
        answers["without the flag"] = send(s, at, 30000), len(there.recv(70000))
        got = notifications(s, 6)
        answers["numbers"] = sorted(n for ids, _ in got for n in ids)
        if proto == ZRS:
            # One by one, as a notification takes the next ones in, whatever their code.
            for n, code in (LONGEST, 0), (4097, 0), (4096, CODE_COPIED), (0, CODE_COPIED), (20000, 0):
                send(s, at, n, ask), there.recv(70000)
                check(f"{n} bytes: the code", [how for _, how in notifications(s, 1)], [code])
        answers["none is left"] = fails(s.recvmsg, 100, 100, MSG_ERRQUEUE | socket.MSG_DONTWAIT)
        s.setsockopt(SOL, SO_ZEROCOPY, 0)
        answers["cleared"] = [s.getsockopt(SOL, SO_ZEROCOPY), send(s, at, 5000, ask), len(there.recv(70000))]
        pid = os.fork()
        if pid == 0:
            # A user without privileges, whose pages count against RLIMIT_MEMLOCK.
            free.connect(there.getsockname())
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (8 * PAGE, 8 * PAGE))
            os.setuid(65534)
            os._exit(send(free, at, 40000, ask) == "ENOBUFS")
        answers["beyond RLIMIT_MEMLOCK"] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        seen.append(answers)
        s.close(), there.close(), free.close()
    for key, want in seen[0].items():
        check(key, seen[1][key], want)


def pinned_above(before, seconds=20):
    """Whether a whole datagram's pages get pinned in this time."""
    late = time.monotonic() + seconds * PATIENCE
    while kernel_pins() - before < 16 and time.monotonic() < late:
        time.sleep(0.1)
    return kernel_pins() - before >= 16


def let_go(before, seconds=60):
    late = time.monotonic() + seconds * PATIENCE
    while kernel_pins() != before and time.monotonic() < late:
        time.sleep(0.1)
    return kernel_pins() - before


def sender(s, act):
    """A process that sends a datagram of memory of its own; what it was, and the process."""
    at, data = memory(17)
    pid = os.fork()
    if pid == 0:
        try:
            act(s, at)
        finally:
            os._exit(0)
    libc.munmap(at, 17 * PAGE)
    return pid, data[:LONGEST]


def waits(cut, mend):
    """B does not acknowledge: the memory stays pinned until it does, whatever becomes of the sender."""
    there, s = pair()
    s.setsockopt(SOL, SO_ZEROCOPY, 1)

    def plainly(s, at):
        send(s, at, LONGEST)

    def unmaps(s, at):
        threading.Thread(target=send, args=(s, at, LONGEST), daemon=True).start()
        pinned_above(before)
        libc.munmap(at, 17 * PAGE)
        memory(64)
        os.write(out, b"x")
        time.sleep(1000)

    def forks(s, at):
        threading.Thread(target=send, args=(s, at, LONGEST), daemon=True).start()
        pinned_above(before)
        if os.fork() == 0:
            ctypes.memset(at, 0x77, 17 * PAGE)
            os._exit(0)
        os.wait()
        os.write(out, b"x")
        time.sleep(1000)

    def at_once(s, at):
        send(s, at, LONGEST, MSG_ZEROCOPY)
        os.write(out, b"x")
        time.sleep(1000)

    for name, act in (("killed", plainly), ("it unmaps the memory, and is killed", unmaps),
                      ("it forks, and is killed", forks), ("MSG_ZEROCOPY, and killed", at_once)):
        back, out = os.pipe()
        before = kernel_pins()
        os.system(cut)
        pid, data = sender(s, act)
        holds(f"{name}: the pages are pinned", pinned_above(before), kernel_pins() - before)
        if act is plainly:
            time.sleep(0.5)
            check(f"{name}: the call waits", os.waitpid(pid, os.WNOHANG), (0, 0))
        else:
            holds(f"{name}: it goes on", bool(select.select([back], [], [], 20 * PATIENCE)[0]))
        os.kill(pid, signal.SIGKILL)
        check(f"{name}: it ends", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), -signal.SIGKILL)
        # The device may still read them.
        holds(f"{name}: the pages stay pinned", kernel_pins() - before >= 16, kernel_pins() - before)
        # What is free now is used for something else.
        junk = [memory(256) for _ in range(4)]
        os.system(mend)
        got = there.recv(70000)
        holds(f"{name}: its datagram arrives as it was", got == data, len(got))
        for at, _ in junk:
            libc.munmap(at, 256 * PAGE)
        check(f"{name}: nothing stays pinned", let_go(before), 0)
        os.close(back), os.close(out)
    check("the notification", [ids for ids, _ in notifications(s, 1)], [[0]])


def error_of(s):
    late, error = time.monotonic() + 20 * PATIENCE, 0
    while not error and time.monotonic() < late:
        error = s.getsockopt(SOL, socket.SO_ERROR)
        time.sleep(0.05)
    return error


def dead(cut, mend):
    """The device would wait for minutes for an acknowledgement: the call ends after dead_ms, and its link with it."""
    there, s = pair()
    at, _ = memory(17)
    before = kernel_pins()
    os.system(cut)
    results = []
    thread = threading.Thread(target=lambda: results.append(send(s, at, LONGEST)), daemon=True)
    thread.start()
    thread.join(30 * PATIENCE)
    check("the call ends", results, [LONGEST])
    check("nothing stays pinned", let_go(before), 0)
    check("and the error", error_of(s), errno.EHOSTUNREACH)
    os.system(mend)
    there.close()


def lost(cut, mend):
    """The link fails while a sender waits: it goes on, and hears of it by its next call."""
    there, s = pair()
    other = datagram("A", (A, 0))
    other.connect(there.getsockname())
    other.setblocking(True)
    s.setsockopt(SOL, SO_ZEROCOPY, 1)
    at, _ = memory(17)
    before = kernel_pins()
    os.system(cut)
    # Together with the two below it is less than the credit of datagrams.
    check("MSG_ZEROCOPY: it does not wait", send(s, at, 5 * PAGE, MSG_ZEROCOPY), 5 * PAGE)
    results = []
    thread = threading.Thread(target=lambda: results.append(send(s, at, LONGEST)))
    thread.start()
    holds("the pages are pinned", pinned_above(before + 5), kernel_pins() - before)
    check("and the call waits", results, [])
    # The link lasts for 30 s, however slow the machine is.
    time.sleep(STALL + 0.5)
    held, bytes_ = kernel_pins(), counter("tx_copied")
    check("after dgram_stall_ms another call does not wait", send(other, at, THRESHOLD), THRESHOLD)
    check("while the first one still does", results, [])
    check("its datagram is copied", [kernel_pins() - held, counter("tx_copied") - bytes_], [0, THRESHOLD])
    thread.join(200 * PATIENCE)
    check("the call ends with the link, as if the datagram were sent", results, [LONGEST])
    check("nothing stays pinned", let_go(before), 0)
    check("the notification", [ids for ids, _ in notifications(s, 1)], [[0]])
    check("and the error", error_of(s), errno.EHOSTUNREACH)
    os.system(mend)
    there.settimeout(0.5 * SCALE)
    late, got = time.monotonic() + 60 * PATIENCE, b""
    while not got and time.monotonic() < late:
        fails(s.send, b"again")
        try:
            got = there.recv(70000)
        except TimeoutError:
            pass
    check("the next one arrives, and no lost one", got, b"again")


CASES = {"copies": copies, "contents": contents, "absent": absent, "told": told, "waits": waits, "lost": lost,
         "dead": dead}
name, *commands = sys.argv[1:]
CASES[name](*(commands if name in ("waits", "lost", "dead") else []))
