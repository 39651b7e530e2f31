#!/usr/bin/python3
"""Copies that need a key each of their target: failed ones leave none behind, and those beyond what a region has keys for, or the
source's host places, wait. A region that is sealed under copies.
  copies.py keys             the keys of the target
  copies.py places STORAGE   the places of the source's host, which is this one; STORAGE: of a region of node 1:2 of 4 MiB at
                             least, which can be written, but gives no keys
  copies.py sealed           the seal
  copies.py signaled         signals
"""
import ctypes
import errno
import fcntl
import os
import signal
import struct
import sys
import time

sys.path.insert(0, "/zrs/userspace/examples")
from zrs_mem import alloc, free, opened, seal

QUEUE, SUBMIT = 1 << 30 | 16 << 16 | 0xE7 << 8 | 0x14, 1 << 30 | 16 << 16 | 0xE7 << 8 | 0x58
COPY, WRITE, CANCEL = 1, 2, 4
SOURCE, TARGET = (1, 1), (1, 2)
SIZE, PART, LONG = 4 << 20, 64 << 10, 24 << 20
UNDER_WAY = 32  # operations of a queue


def check(name, ok):
    print(("ok - " if ok else "not ok - ") + name, flush=True)


def queue():
    return fcntl.ioctl(os.open("/dev/zrs", os.O_RDWR), QUEUE, bytearray(struct.pack("<IIQ", 4096, 0, 0)))


def submit(to, op, target, off, source, length, name, source_fd=0):
    words = struct.pack("<BBHiiIQQQQQQ", op, 0, 0, target, source_fd, 0, off, source, length, name, 0, 0)
    entry = ctypes.create_string_buffer(words, len(words))
    fcntl.ioctl(to, SUBMIT, bytearray(struct.pack("<QII", ctypes.addressof(entry), 1, 0)))


def copy(to, source, target, off, length, name):
    submit(to, COPY, target, off, off, length, name, source)


def results(of, count):
    """The completions, {name: (res, done)}."""
    done = {}
    while len(done) < count:
        for name, res, landed, *_ in struct.iter_unpack("<QqQII", os.read(of, 32 * count)):
            done[name] = (res, landed)
    return done


def error_of(source, target, length):
    try:
        os.copy_file_range(source, target, length, 0, 0)
        return 0
    except OSError as e:
        return e.errno


def names(found):
    return sorted(errno.errorcode.get(e, e) for e in set(found))


def many(what, target, queues):
    """Each queue has as many copies under way as it can."""
    data = os.urandom(SIZE)
    source, _ = alloc(SOURCE, SIZE)
    os.pwrite(source, data, 0)
    length = 4 * PART
    for n in range(2 * UNDER_WAY):
        for to in queues:
            copy(to, source, target, n * length % SIZE, length, n)
    found = [res for to in queues for res, _ in results(to, 2 * UNDER_WAY).values()]
    check(f"{what}: {names(-res for res in found if res < 0)}", set(found) == {length})
    check("and they are right", os.pread(target, SIZE, 0) == data)


def keys():
    """A region has 64 keys."""
    source, _ = alloc(SOURCE, SIZE)
    target, _ = alloc(TARGET, SIZE)
    gone, _ = alloc(SOURCE, PART)
    free(gone)
    found = [error_of(gone, target, PART) for _ in range(70)]
    check(f"70 copies from a region that was freed: {names(found)}", set(found) == {errno.ESTALE})
    check("and then one that succeeds", error_of(source, target, PART) == 0)
    one = queue()
    for n in range(70):
        copy(one, gone, target, 0, PART, n)
    found = [-res for res, _ in results(one, 70).values()]
    check(f"70 such copies of a queue: {names(found)}", set(found) == {errno.ESTALE})
    copy(one, source, target, 0, PART, 1)
    check("and then one that succeeds", results(one, 1)[1] == (PART, PART))
    canceled = 0
    for _ in range(6):
        for n in range(UNDER_WAY):
            copy(one, source, target, 0, SIZE, n)
        for n in range(UNDER_WAY):
            submit(one, CANCEL, 0, 0, n, 0, 100 + n)
        canceled += sum(res == -errno.ECANCELED for res, _ in results(one, 2 * UNDER_WAY).values())
    print(f"# {canceled} copies were canceled")
    copy(one, source, target, 0, PART, 1)
    check("after canceled copies, one that succeeds", canceled > 64 and results(one, 1)[1] == (PART, PART))
    many("more copies at a time than the target's region has keys for", target, [queue() for _ in range(4)])


def sealed():
    """A region is sealed under copies and writes."""
    source, _ = alloc(SOURCE, LONG)
    data = os.urandom(LONG)
    os.pwrite(source, data, 0)
    memory = ctypes.create_string_buffer(data, LONG)
    one = queue()
    for what, begin in (
        ("copies", lambda target: copy(one, source, target, 0, LONG, 1)),
        ("writes", lambda target: submit(one, WRITE, target, 0, ctypes.addressof(memory), LONG, 1)),
    ):
        found, landed, right, whole = [], [], True, 0
        # The first of each ten is not sealed: it tells how long one takes on this machine now.
        for n in range(60):
            if n >= 10 and found.count(-errno.EROFS) > 1 and any(0 < done < LONG for done in landed):
                break
            target, _ = alloc(TARGET, LONG)
            since = time.monotonic()
            begin(target)
            if n % 10:
                time.sleep(whole * (n % 10) / 10)
                seal(target)
            res, done = results(one, 1)[1]
            if n % 10 == 0:
                whole = time.monotonic() - since
            found.append(res)
            landed.append(done)
            right = right and os.pread(target, done, 0) == data[:done]
            free(target)
            os.close(target)
        print(f"# bytes that have landed: {landed}")
        check(f"a region is sealed under {what}: {names(-res for res in found if res < 0)}", set(found) <= {LONG, -errno.EROFS})
        check("more than one of them was not done", found.count(-errno.EROFS) > 1)
        check("one of these was in its middle", any(0 < done < LONG for done in landed))
        check("the bytes that are told have landed", right)


def signaled():
    """A signal that does not kill ends no call."""
    source, _ = alloc(SOURCE, LONG)
    target, _ = alloc(TARGET, LONG)
    data = os.urandom(LONG)
    seen = []
    signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)
    wrote = os.pwrite(source, data, 0)
    copied = os.copy_file_range(source, target, LONG, 0, 0)
    read = os.pread(target, LONG, 0)
    signal.setitimer(signal.ITIMER_REAL, 0)
    check(f"{len(seen)} signals end no pwrite()", seen and wrote == LONG)
    check("nor copy_file_range()", copied == LONG)
    check("nor pread()", read == data)


# A host has 256 places, and leaves half of them to other hosts.
places = "more copies at a time than the source's host has places for"
{
    "keys": keys,
    "places": lambda: many(places, opened(sys.argv[2]), [queue() for _ in range(6)]),
    "sealed": sealed,
    "signaled": signaled,
}[sys.argv[1]]()
