#!/usr/bin/python3
"""Regions that are opened again by /proc.
  reopen.py            the checks
  reopen.py hold       holds a region by such a descriptor alone
  reopen.py try FD     opens a descriptor that it has inherited, and one of its own
"""
import errno
import os
import subprocess
import sys
import time

sys.path.insert(0, "/zrs/userspace/examples")
import zrs_mem

SIZE = 1 << 20
ANY = os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_ACCMODE


def check(name, ok):
    print(("ok - " if ok else "not ok - ") + name, flush=True)


def again(fd, flags, pid="self"):
    return os.open(f"/proc/{pid}/fd/{fd}", flags)


def refusal(call, *args):
    """The errno of a call."""
    try:
        call(*args)
        return 0
    except OSError as e:
        return e.errno


def refused(name, number, call, *args):
    got = refusal(call, *args)
    check(f"{name}: {os.strerror(got)}", got == number)


def allowed(fd):
    """The modes that a descriptor can be opened again for; the others are EACCES."""
    modes = []
    for mode in ANY:
        try:
            os.close(again(fd, mode))
            modes.append(mode)
        except PermissionError:
            pass
    return modes


if sys.argv[1:] == ["hold"]:
    first, _ = zrs_mem.alloc((1, 1), SIZE)
    second = again(first, os.O_RDONLY)
    os.close(first)
    print("holding", flush=True)
    time.sleep(3600)
if sys.argv[1:2] == ["try"]:
    own, _ = zrs_mem.alloc((1, 1), SIZE)
    refused("another user's descriptor", errno.EACCES, again, int(sys.argv[2]), os.O_RDONLY)
    check("a user's own", allowed(own) == list(ANY))
    sys.exit()

one, id_one = zrs_mem.alloc((1, 1), SIZE)
two, _ = zrs_mem.alloc((1, 2), SIZE)
data = os.urandom(SIZE)
second = again(one, os.O_RDWR)
check("the same file", os.fstat(second).st_ino == os.fstat(one).st_ino and os.fstat(second).st_size == SIZE)
check("bytes that are written by it", os.pwrite(second, data, 0) == SIZE and os.pread(one, SIZE, 0) == data)
os.lseek(second, 1000, os.SEEK_SET)
check("it has a position of its own", os.lseek(one, 0, os.SEEK_CUR) == 0 and os.read(second, 10) == data[1000:1010])
refused("a copy onto itself by two descriptors", errno.EINVAL, os.copy_file_range, one, second, 5000, 0, 100)
refused("with O_TRUNC", errno.EINVAL, again, one, os.O_RDWR | os.O_TRUNC)
reader, writer = again(one, os.O_RDONLY | os.O_DIRECT), again(second, os.O_WRONLY)
check("for reading, with O_DIRECT", os.pread(reader, SIZE, 0) == data)
refused("it does not write", errno.EBADF, os.pwrite, reader, b"x", 0)
check("for writing", os.pwrite(writer, b"x", 5) == 1 and os.pread(one, 1, 5) == b"x")
refused("it does not read", errno.EBADF, os.pread, writer, 1, 0)
os.pwrite(writer, data[5:6], 5)

check("of a region, all modes", allowed(one) == list(ANY))
for rights, modes in ((zrs_mem.READ, [os.O_RDONLY]), (zrs_mem.WRITE, [os.O_WRONLY])):
    part = zrs_mem.opened(zrs_mem.derive(one, id_one, rights, 0, SIZE))
    check(f"of a key with rights {rights}, no more than those", allowed(part) == modes)
    os.close(part)

os.close(one)
os.close(writer)
time.sleep(1)
check("the first one is closed, the others go on", os.pread(second, SIZE, 0) == data)
check("copy_file_range from it", os.copy_file_range(reader, two, SIZE, 0, 0) == SIZE)
check("the bytes are there", os.pread(two, SIZE, 0) == data)
third = again(two, os.O_RDWR)
check("and to such a one", os.copy_file_range(two, third, 1000, 0, 500000) == 1000)
check("which is right", os.pread(two, 1000, 500000) == data[:1000])
os.close(third)
path = f"/proc/{os.getpid()}/fd/{second}"
check("another program opens it", subprocess.run(["cat", path], stdout=subprocess.PIPE, check=True).stdout == data)
pid = os.fork()
if pid == 0:
    os.close(second)
    os.close(reader)
    mine = again(second, os.O_RDWR, os.getppid())
    os._exit(0 if os.pread(mine, SIZE, 0) == data else 1)
check("so does a child", os.waitpid(pid, 0)[1] == 0)
os.set_inheritable(reader, True)
other = [sys.executable, __file__, "try", str(reader)]
tried = subprocess.run(other, pass_fds=[reader], user=65534, group=65534, extra_groups=[], stdout=subprocess.PIPE, check=False)
print(tried.stdout.decode(), end="", flush=True)

named = again(second, os.O_PATH)
os.close(second)
last = again(named, os.O_RDONLY)
os.close(reader)
check("O_PATH names it", os.pread(last, 100, 0) == data[:100])
os.close(last)
late = time.monotonic() + 20 * int(os.environ.get("TIME_SCALE", "1")) * int(os.environ.get("LIMIT_SCALE", "1"))
while refusal(zrs_mem.opened, id_one) == 0 and time.monotonic() < late:
    time.sleep(0.1)
refused("the region ends with the last descriptor", errno.ESTALE, zrs_mem.opened, id_one)
refused("O_PATH does not keep it", errno.ESTALE, again, named, os.O_RDONLY)
