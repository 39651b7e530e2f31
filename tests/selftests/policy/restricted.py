#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""What sockets do in a process that has restricted itself, by Landlock or seccomp; in host B.

  restricted.py          prints a line for each thing it looked at
  restricted.py allowed  the administrator lets such processes have TCP beside ZRS
"""

import ctypes
import errno
import os
import platform
import socket
import struct
import sys

TCP, ZRS = 6, 253
SOL_ZRS, ZRS_TCP = 0x5A52, 3
NEVER, AUTO, REQUIRED, ONLY = range(4)
B = os.environ["ADDR_B"]
ALLOWED, OTHER, REACHED = 7400, 7401, 7402
LANDLOCK_BIND_TCP, LANDLOCK_CONNECT_TCP, LANDLOCK_RULE_NET = 1, 2, 2
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
NO_NEW_PRIVS, SET_SECCOMP = 38, 22
BIND = {"x86_64": 49, "aarch64": 200, "riscv64": 200}[platform.machine()]
CONNECT = {"x86_64": 42, "aarch64": 203, "riscv64": 203}[platform.machine()]
libc = ctypes.CDLL(None, use_errno=True)


def check(name, seen, want):
    if seen == want:
        print(f"ok - {name}", flush=True)
    else:
        print(f"not ok - {name}: expected {want}, got {seen}", flush=True)


def done(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def fails(call, *args):
    try:
        call(*args)
    except OSError as e:
        return errno.errorcode[e.errno]
    return "no error"


def landlock():
    """From now on the process may bind sockets of TCP to the port ALLOWED alone, and connect them to
    REACHED. Whether the kernel has Landlock; without it, the process only has no_new_privs."""
    attr = ctypes.create_string_buffer(struct.pack("<QQ", 0, LANDLOCK_BIND_TCP | LANDLOCK_CONNECT_TCP), 16)
    rules = libc.syscall(CREATE_RULESET, attr, 16, 0)
    if rules < 0 and ctypes.get_errno() in (errno.ENOSYS, errno.EOPNOTSUPP):
        print("skip - Landlock at work: this kernel has no Landlock", flush=True)
        done(libc.prctl(NO_NEW_PRIVS, 1, 0, 0, 0))
        return False
    done(rules)
    for access, port in (LANDLOCK_BIND_TCP, ALLOWED), (LANDLOCK_CONNECT_TCP, REACHED):
        rule = ctypes.create_string_buffer(struct.pack("<QQ", access, port), 16)
        done(libc.syscall(ADD_RULE, rules, LANDLOCK_RULE_NET, rule, 0))
    done(libc.prctl(NO_NEW_PRIVS, 1, 0, 0, 0))
    done(libc.syscall(RESTRICT_SELF, rules, 0))
    return True


def seccomp():
    """From now on bind() and connect() are EPERM."""
    code = struct.pack("<HBBI", 0x20, 0, 0, 0) + struct.pack("<HBBI", 0x15, 1, 0, BIND)
    code += struct.pack("<HBBI", 0x15, 0, 1, CONNECT)
    code += struct.pack("<HBBI", 0x06, 0, 0, 0x50000 | errno.EPERM) + struct.pack("<HBBI", 0x06, 0, 0, 0x7FFF0000)
    code = ctypes.create_string_buffer(code, 40)
    prog = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", 5, ctypes.addressof(code)), 16)
    done(libc.prctl(NO_NEW_PRIVS, 1, 0, 0, 0))
    done(libc.prctl(SET_SECCOMP, 2, prog, 0, 0))


def binds(s, port):
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return fails(s.bind, (B, port))


def both(mode):
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, ZRS)
    s.setsockopt(SOL_ZRS, ZRS_TCP, mode)
    return s


def in_child(test):
    pid = os.fork()
    if pid == 0:
        try:
            test()
        except OSError as e:
            print(f"not ok - {test.__name__}: {e}", flush=True)
        os._exit(0)
    os.waitpid(pid, 0)


def landlocked():
    early = [(mode, both(mode)) for mode in (AUTO, REQUIRED)]
    carried, fallen = both(ONLY), [(mode, both(mode)) for mode in (AUTO, REQUIRED)]
    # Servers of TCP alone, from before.
    servers = [socket.create_server((B, port)) for port in (REACHED, OTHER)]
    if landlock():
        tcp = lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, TCP)
        check("Landlock: TCP at the port that is allowed", binds(tcp(), ALLOWED), "no error")
        check("Landlock: TCP at another port", binds(tcp(), OTHER), "EACCES")
        seen = [fails(tcp().connect, (B, port)) for port in (REACHED, OTHER)]
        check("Landlock: TCP to the port that is allowed, and to another", seen, ["no error", "EACCES"])
        servers[0].accept()
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, ZRS)
    check("Landlock: ZRS alone has ports of its own", binds(s, OTHER), "no error")
    check("Landlock: a socket that TCP carries", (binds(carried, OTHER), fails(carried.connect, (B, OTHER))), ("EACCES",) * 2)
    for mode, s in fallen:
        # ZRS alone: nothing of TCP is sent.
        seen = [fails(s.connect, (B, port)) for port in (REACHED, OTHER)]
        check(f"Landlock: connect() in mode {mode} does not fall back", seen, ["ECONNREFUSED"] * 2)
    for s in servers:
        s.setblocking(False)
        check("Landlock: no connection has come", fails(s.accept), "EAGAIN")
        s.close()
    for mode, s in early:
        check(f"Landlock: ZRS and TCP, mode {mode}", binds(s, OTHER), "EACCES")
        check(f"Landlock: the mode {mode} set later", fails(both, mode), "EACCES")
        check(f"Landlock: listen() chooses no port, mode {mode}", fails(s.listen), "EACCES")


def filtered():
    sockets = [both(NEVER), both(AUTO), socket.socket(socket.AF_INET, socket.SOCK_STREAM, TCP)]
    seccomp()
    seen = [fails(s.bind, (B, 0)) for s in sockets]
    check("seccomp: bind() of ZRS, of both, of TCP", seen, ["EPERM"] * 3)
    seen = [fails(s.connect, (B, OTHER)) for s in sockets]
    check("seccomp: connect() of ZRS, of both, of TCP", seen, ["EPERM"] * 3)


def allowed():
    landlock()
    check("allowed by the administrator: a socket that TCP carries", binds(both(ONLY), OTHER), "no error")
    check("allowed by the administrator: both at any port", binds(both(AUTO), OTHER), "no error")


if __name__ == "__main__":
    for test in [allowed] if sys.argv[1:] else [landlocked, filtered]:
        in_child(test)
