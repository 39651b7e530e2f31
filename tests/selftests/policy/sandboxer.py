#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""What samples/landlock/sandboxer of the kernel does for TCP: a program that may bind and connect to
some ports alone.

  sandboxer.py BIND CONNECT CMD...  runs CMD; BIND and CONNECT are lists of ports, such as 7400,7401.
                                    Exit status 77: this kernel has no Landlock for TCP
  sandboxer.py try ADDRESS PORT...  prints what bind() and connect() say of these ports
"""

import ctypes
import errno
import os
import socket
import struct
import sys

from restricted import ADD_RULE, CREATE_RULESET, LANDLOCK_RULE_NET, NO_NEW_PRIVS, RESTRICT_SELF, done, fails, libc

BIND_TCP, CONNECT_TCP = 1, 2


def landlock(bind, connect):
    attr = ctypes.create_string_buffer(struct.pack("<QQ", 0, BIND_TCP | CONNECT_TCP), 16)
    rules = libc.syscall(CREATE_RULESET, attr, 16, 0)
    if rules < 0 and ctypes.get_errno() in (errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL):
        sys.exit(77)
    done(rules)
    for ports, access in (bind, BIND_TCP), (connect, CONNECT_TCP):
        for port in filter(None, ports.split(",")):
            rule = ctypes.create_string_buffer(struct.pack("<QQ", access, int(port)), 16)
            done(libc.syscall(ADD_RULE, rules, LANDLOCK_RULE_NET, rule, 0))
    done(libc.prctl(NO_NEW_PRIVS, 1, 0, 0, 0))
    done(libc.syscall(RESTRICT_SELF, rules, 0))


def attempts(address, ports):
    for port in map(int, ports):
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound = fails(s.bind, (address, port))
        with socket.socket() as s:
            s.settimeout(20)
            print(port, bound, fails(s.connect, (address, port)), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "try":
        attempts(sys.argv[2], sys.argv[3:])
    else:
        landlock(*sys.argv[1:3])
        os.execvp(sys.argv[3], sys.argv[3:])
