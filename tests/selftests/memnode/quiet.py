#!/usr/bin/python3
"""Looks at a node's memory for a second after each of the five ends of writes to it: seal, revocation, free, cancel, and the
kill of the writing programs.
  quiet.py NODE    (number of the node in domain 1 that this host shall serve; hosts A and C have it in their directory)
"""
import ctypes
import errno
import fcntl
import mmap
import os
import re
import struct
import subprocess
import sys
import time

sys.path.insert(0, "/zrs/userspace/examples")
from zrs_mem import alloc, derive, free, opened, revoke, seal, READ, WRITE as MAY_WRITE
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from hosts import PATIENCE, host
from memqueue import CANCEL, COPY, WRITE, completions, entry, queue, submit

SERVE, OPEN_TO_ALL = 1 << 30 | 72 << 16 | 0xE7 << 8 | 0x10, 1
SIZE, PAGE, SECOND = 4 << 20, 4096, 1.0
NODE = (1, int(sys.argv[1]))
HAMMER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hammer.py")


def check(name, ok):
    print(("ok - " if ok else "not ok - ") + name, flush=True)


memfd = os.memfd_create("node")
os.ftruncate(memfd, SIZE)
memory = mmap.mmap(memfd, SIZE)
node_fd = fcntl.ioctl(
    os.open("/dev/zrs", os.O_RDWR),
    SERVE,
    bytearray(struct.pack("<IIiIQQ16sIIQQ", *NODE, memfd, OPEN_TO_ALL, 0, SIZE, b"", 100, 0, 0, 0)),
)


def moved(freed=False):
    """Looks at all of the node's memory from now on for a second: where a byte has changed, or None, how often it has looked,
    and for how long. The bytes of a freed region are zeroed, from the front of each page, and stay so."""
    last, begun, looks = memory[:], time.monotonic(), 0
    while True:
        took = time.monotonic() - begun
        now = memory[:]
        looks += 1
        if now != last:
            for at in range(0, SIZE, PAGE):
                old, new = last[at:at + PAGE], now[at:at + PAGE]
                if new != old and not (freed and old.endswith(new.lstrip(b"\0"))):
                    return at, looks, took
        last = now
        if took >= SECOND:
            return None, looks, took


def give_back(region):
    """Frees the region and waits for that, unless it is free already: the close of its descriptor does not."""
    try:
        free(region)
    except OSError as e:
        if e.errno != errno.ESTALE:
            raise
    os.close(region)


def check_still(end, freed=False):
    at, looks, took = moved(freed)
    check(f"nothing moves in the second after {end}" + ("" if at is None else f": the page at {at} does"), at is None)
    if at is None:
        print(f"# {looks} looks in {took:.2f} s", flush=True)


def hammers(hosts, text):
    """Programs that write the region of that storage id, all of it at a time: so there is much under way at any time."""
    found = []
    for name in hosts:
        with host(name):
            found.append(subprocess.Popen([HAMMER, text, str(SIZE >> 11)], stdout=subprocess.PIPE, text=True))
    for program in found:
        if program.stdout.readline() != "writing\n":
            sys.exit("a program does not write")
    return found


def check_refused(end, programs):
    said = [program.communicate(timeout=20 * PATIENCE)[0].strip() for program in programs]
    check(f"the writers are refused after {end}: {said}", all(program.returncode == 0 for program in programs))


def ended(end, by):
    """Both hosts write, while one of them, or this one, ends that."""
    region, text = alloc(NODE, SIZE // 2)
    key = derive(region, text, READ | MAY_WRITE, 0, SIZE // 2)
    with host(by):
        mine = opened(text)
    programs = hammers("AACC", key)
    time.sleep(0.5)
    if all(program.poll() is None for program in programs):
        {"seal": seal, "revocation": lambda fd: revoke(fd, key), "free": free}[end](mine)
        check_still(end, freed=end == "free")
    else:
        check(f"the writers go on until {end}", False)
    check_refused(end, programs)
    os.close(mine)
    give_back(region)


def canceled():
    """Queued copies and writes of different bytes to the same place are canceled."""
    region, text = alloc(NODE, SIZE)
    for n in range(12):
        os.pwrite(region, bytes(SIZE), 0)
        with host("A"):
            sources = [alloc((1, 2), SIZE)[0] for _ in range(2)]
            target = opened(text)
            one = queue()
        data = [bytes([value]) * SIZE for value in (1, 2, 3, 4)]
        for source, filled in zip(sources, data):
            os.pwrite(source, filled, 0)
        programs = [ctypes.create_string_buffer(filled, SIZE) for filled in data[2:]]
        entries = [entry(COPY, target, 0, 0, SIZE, k, sources[k]) for k in range(2)]
        entries += [entry(WRITE, target, 0, ctypes.addressof(programs[k]), SIZE, 2 + k) for k in range(2)]
        begun = time.monotonic()
        submit(one, *entries)
        # Until a copy is under way.
        late = time.monotonic() + 10 * PATIENCE
        while memory.find(b"\1") < 0 and memory.find(b"\2") < 0 and time.monotonic() < late:
            pass
        time.sleep(0.01 * n)
        submit(one, *(entry(CANCEL, 0, 0, k, 0, 10 + k) for k in range(4)))
        found = completions(one, 8)
        at, looks, took = moved()
        late = time.monotonic() - begun - took >= 2
        results = [found[k][0] for k in range(4)]
        for fd in target, one:
            os.close(fd)
        for source in sources:
            give_back(source)
        if -errno.ECONNRESET in results and late:
            continue  # The peer had no time; then a cancel promises nothing.
        if at is not None:
            check(f"nothing moves in the second after cancel: the page at {at} does, {results}", False)
            give_back(region)
            return
        if results.count(-errno.ECANCELED) >= 2 and n >= 2:
            check("nothing moves in the second after cancel", True)
            print(f"# {looks} looks in {took:.2f} s, {n + 1} rounds, the last one: {results}", flush=True)
            give_back(region)
            return
    check("operations are canceled in their middle", False)
    give_back(region)


def pinned():
    """The pages of programs that the module has pinned."""
    stats = subprocess.run(["zrs", "stats", "--json"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return int(re.search(r'"pages_pinned":(\d+)', stats)[1])


def killed():
    """What a program had posted when it was killed goes on until its pages are unpinned, and no longer."""
    region, text = alloc(NODE, SIZE)
    programs = hammers("AAA", text)
    time.sleep(0.5)
    for program in programs:
        program.kill()
    for program in programs:
        program.wait()
    begun, first = time.monotonic(), memory[:]
    while pinned() and time.monotonic() < begun + 20 * PATIENCE:
        time.sleep(0.01)
    print(f"# pages are unpinned {time.monotonic() - begun:.2f} s after the kill; bytes "
          f"{'have not' if memory[:] == first else 'have'} changed since", flush=True)
    check_still("kill")
    give_back(region)


for what, where in ("seal", "B"), ("revocation", "A"), ("free", "B"), ("free", "A"):
    ended(what, where)
next_one = alloc(NODE, SIZE)[0]
check("the memory of a freed region is zero for the next one", not any(os.pread(next_one, SIZE, 0)))
give_back(next_one)
canceled()
killed()
