# SPDX-License-Identifier: GPL-2.0
"""BPF programs by bpf(2), written as instructions: a program is attached to a control group while a
`with` block runs."""

import contextlib
import ctypes
import os
import platform
import socket
import struct

SYS_BPF = {"x86_64": 321, "aarch64": 280, "riscv64": 280}[platform.machine()]
MAP_CREATE, MAP_LOOKUP, PROG_LOAD, PROG_ATTACH, PROG_DETACH = 0, 1, 5, 8, 9
CGROUP_SKB, CGROUP_SOCK, CGROUP_SOCK_ADDR = 8, 9, 18
# Attach types, each with the type of its programs.
INGRESS, EGRESS = (0, CGROUP_SKB), (1, CGROUP_SKB)
SOCK_CREATE, SOCK_RELEASE = (2, CGROUP_SOCK), (34, CGROUP_SOCK)
BIND, BIND6 = (8, CGROUP_SOCK_ADDR), (9, CGROUP_SOCK_ADDR)
CONNECT, CONNECT6 = (10, CGROUP_SOCK_ADDR), (11, CGROUP_SOCK_ADDR)
POST_BIND, POST_BIND6 = (12, CGROUP_SOCK), (13, CGROUP_SOCK)
SENDMSG, SENDMSG6 = (14, CGROUP_SOCK_ADDR), (15, CGROUP_SOCK_ADDR)
RECVMSG, RECVMSG6 = (19, CGROUP_SOCK_ADDR), (20, CGROUP_SOCK_ADDR)
PEERNAME, SOCKNAME = (29, CGROUP_SOCK_ADDR), (31, CGROUP_SOCK_ADDR)
PEERNAME6, SOCKNAME6 = (30, CGROUP_SOCK_ADDR), (32, CGROUP_SOCK_ADDR)
# Offsets in struct bpf_sock_addr, bpf_sock, __sk_buff.
USER_IP4, USER_IP6, USER_PORT, SOURCE_IP4 = 4, 8, 24, 40
SOCK_PORT = 44
LOOKUP_ELEM, BPF_BIND, SKB_LOAD_BYTES = 1, 64, 26

libc = ctypes.CDLL(None, use_errno=True)


def bpf(cmd, attr):
    buf = ctypes.create_string_buffer(attr, 144)
    got = libc.syscall(SYS_BPF, cmd, buf, 144)
    if got < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return got


def insn(op, dst=0, src=0, off=0, imm=0):
    return struct.pack("<BBhi", op, dst | src << 4, off, imm - (1 << 32) if imm >= 1 << 31 else imm)


def mov(dst, imm):
    return insn(0xB7, dst, imm=imm)


def copy(dst, src):
    return insn(0xBF, dst, src)


def load(dst, src, off):
    """The 32-bit word at `src` + `off`."""
    return insn(0x61, dst, src, off)


def store(dst, off, src):
    return insn(0x63, dst, src, off)


def host16(dst):
    """From network order."""
    return insn(0xDC, dst, imm=16)


def call(helper):
    return insn(0x85, imm=helper)


def skip_if(op, dst, imm, n):
    return insn({"==": 0x15, ">": 0x25, "!=": 0x55, "<": 0xA5}[op], dst, off=n, imm=imm)


def returns(value):
    return mov(0, value) + insn(0x95)


def field(off, size):
    """Register 2: the word in network order at that place of the packet."""
    code = mov(2, off) + copy(3, 10) + insn(0x07, 3, imm=-4) + mov(4, size) + mov(5, 0)
    return code + store(10, -4, 5) + call(SKB_LOAD_BYTES) + load(2, 10, -4)


def with_map(dst, fd):
    return insn(0x18, dst, 1, imm=fd) + insn(0)


class Counter:
    def __init__(self):
        self.fd = bpf(MAP_CREATE, struct.pack("<5I", 2, 4, 8, 1, 0))

    def program(self):
        """Counts, and says yes."""
        return (
            mov(1, 0) + store(10, -4, 1) + copy(2, 10) + insn(0x07, 2, imm=-4) + with_map(1, self.fd)
            + call(LOOKUP_ELEM) + skip_if("==", 0, 0, 2) + mov(1, 1) + insn(0xDB, 0, 1) + returns(1)
        )

    def value(self):
        key, value = ctypes.c_uint32(0), ctypes.c_uint64(0)
        bpf(MAP_LOOKUP, struct.pack("<IIQQQ", self.fd, 0, ctypes.addressof(key), ctypes.addressof(value), 0))
        return value.value


def loaded(where, code):
    attach, kind = where
    code, license_, log = ctypes.create_string_buffer(code, len(code)), ctypes.c_char_p(b"GPL"), ctypes.create_string_buffer(65536)
    attr = struct.pack(
        "<IIQQIIQII16sII", kind, len(code) // 8, ctypes.addressof(code), ctypes.cast(license_, ctypes.c_void_p).value,
        1, 65536, ctypes.addressof(log), 0, 0, b"policy", 0, attach,
    )
    try:
        return bpf(PROG_LOAD, attr)
    except OSError as e:
        raise OSError(e.errno, f"{e.strerror}: {log.value.decode()}") from e


@contextlib.contextmanager
def attached(group, *programs):
    """`programs`: (where, code), each attached to the control group at the path `group`."""
    dir_ = os.open(group, os.O_RDONLY | os.O_DIRECTORY)
    done = []
    try:
        for where, code in programs:
            fd = loaded(where, code)
            bpf(PROG_ATTACH, struct.pack("<4I", dir_, fd, where[0], 0))
            done.append((where, fd))
        yield
    finally:
        for where, fd in done:
            bpf(PROG_DETACH, struct.pack("<4I", dir_, fd, where[0], 0))
            os.close(fd)
        os.close(dir_)


def join(group):
    """The process is in the control group from now on, and so are the sockets that it makes."""
    with open(f"{group}/cgroup.procs", "w", encoding="ascii") as procs:
        procs.write(str(os.getpid()))


@contextlib.contextmanager
def outside(group):
    """A socket that is made here is not in the control group."""
    join("/sys/fs/cgroup")
    try:
        yield
    finally:
        join(group)


def be16(port):
    return struct.unpack("<H", struct.pack(">H", port))[0]


def be32(ip):
    return struct.unpack("<I", socket.inet_aton(ip))[0]
