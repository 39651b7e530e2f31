#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Keys of TCP_MD5SIG and TCP_AO on sockets of host A, to host B, at addresses that no rule names: a
connection has the key, or there is none.

Prints a line for each thing it looked at.
"""

import ctypes
import os
import socket
import struct
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from hosts import PATIENCE, SCALE, check, fails, skip
from connect import ASKED, AUTO, BY_TCP, BY_ZRS, NEVER, ONLY, REQUIRED, SOL_ZRS, TCP, ZRS, ZRS_TCP, carrier, host

V4, V6 = socket.AF_INET, socket.AF_INET6
HERE, THERE = os.environ["ADDR_A"], os.environ["ADDR_B"]
HERE6, THERE6 = os.environ["ADDR6_A"], os.environ["ADDR6_B"]
# How long a connect that has no answer is looked at, and what has one at most.
SOON, LONG = 2 * SCALE, 20 * PATIENCE
TCP_MD5SIG, TCP_AO_ADD_KEY = 14, 38
NO_NEW_PRIVS = 38


def storage(ip):
    if ":" in ip:
        return struct.pack("=HHI16s104x", V6, 0, 0, socket.inet_pton(V6, ip))
    return struct.pack("=HH4s120x", V4, 0, socket.inet_aton(ip))


def md5(ip, key=b"a secret"):
    return TCP_MD5SIG, storage(ip) + struct.pack("=BBHi80s", 0, 0, len(key), 0, key)


def ao(ip, key=b"a secret"):
    prefix = 128 if ":" in ip else 32
    value = storage(ip) + struct.pack("=64siIH6B80s", b"hmac(sha1)", 0, 0, 0, prefix, 7, 7, 12, 0, len(key), key)
    return TCP_AO_ADD_KEY, value.ljust(288, b"\0")


def new(proto, where="A", mode=None, family=V4):
    with host(where):
        s = socket.socket(family, socket.SOCK_STREAM, proto)
    if mode is not None:
        s.setsockopt(SOL_ZRS, ZRS_TCP, mode)
    s.settimeout(LONG)
    return s


def sign(s, key):
    s.setsockopt(TCP, *key)


def server(proto, where, ip, key=None, mode=None):
    s = new(proto, where, mode, V6 if ":" in ip else V4)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if key:
        sign(s, key)
    s.bind((ip, 0))
    s.listen(4)
    return s


def connects(s, there, want="yes"):
    """How a connect() ends: "no" also where the peer answers with a reset, which it may not sign."""
    s.settimeout(LONG if want == "yes" else SOON)
    return "yes" if fails(s.connect, there.getsockname()[:2]) == "no error" else "no"


def connecting(name, key, here, there):
    family = V6 if ":" in here else V4
    signed, plain = server(TCP, "B", there, key(here)), server(TCP, "B", there)
    both = server(ZRS, "B", there, mode=AUTO)
    s = new(ZRS, mode=AUTO, family=family)
    s.connect(both.getsockname()[:2])
    check(f"{name}: without a key it is ZRS", carrier(s), (BY_ZRS, 0))
    check(f"{name}: a connection by ZRS takes no key", fails(sign, s, key(there)), "ENOPROTOOPT")
    for to, want in (signed, "yes"), (plain, "no"), (both, "no"):
        s = new(ZRS, mode=AUTO, family=family)
        sign(s, key(there))
        check(f"{name}: TCP carries it", carrier(s), (BY_TCP, ASKED))
        kind = "with the key" if to is signed else "of TCP without" if to is plain else "of ZRS, too, without"
        check(f"{name}: to a server {kind}", connects(s, to, want), want)
    s = new(ZRS, mode=AUTO, family=family)
    check(f"{name}: without the key to a server that has it", connects(s, signed, "no"), "no")
    for mode in (NEVER, REQUIRED):
        s = new(ZRS, mode=mode, family=family)
        check(f"{name}: mode {mode} refuses it", fails(sign, s, key(there)), "ENOPROTOOPT")
        check(f"{name}: mode {mode} is ZRS", (connects(s, both), carrier(s)), ("yes", (BY_ZRS, 0)))
    s = new(ZRS, mode=ONLY, family=family)
    sign(s, key(there))
    check(f"{name}: mode {ONLY}", connects(s, signed), "yes")


def listening(name, key):
    for when in "before bind()", "after bind()":
        s = new(ZRS, "B", AUTO)
        if when == "before bind()":
            sign(s, key(HERE))
        s.bind((THERE, 0))
        if when == "after bind()":
            sign(s, key(HERE))
        s.listen(4)
        check(f"{name}, {when}: TCP carries the listener", carrier(s), (BY_TCP, ASKED))
        c = new(TCP)
        sign(c, key(THERE))
        check(f"{name}, {when}: a client with the key", connects(c, s), "yes")
        check(f"{name}, {when}: is accepted", s.accept()[1], c.getsockname())
        check(f"{name}, {when}: a client without", connects(new(TCP), s, "no"), "no")
        check(f"{name}, {when}: a client of ZRS", connects(new(ZRS, mode=NEVER), s, "no"), "no")
    s = server(ZRS, "B", THERE, mode=AUTO)
    check(f"{name}: a listener of both takes no key", fails(sign, s, key(HERE)), "ENOPROTOOPT")


def restricted(name, key):
    """The process may not have TCP beside ZRS."""
    s = new(ZRS, mode=AUTO)
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(NO_NEW_PRIVS, 1, 0, 0, 0)
        check(f"{name}: with no_new_privs", fails(sign, s, key(THERE)), "ENOPROTOOPT")
        os._exit(0)
    os.wait()


for name, key in ("MD5", md5), ("AO", ao):
    try:
        sign(new(TCP), key(THERE))
    except OSError as e:
        skip(f"keys of TCP_{name}", f"this kernel has none ({e.strerror})")
        s = new(ZRS, mode=AUTO)
        check(f"{name}: its errno, where the kernel has none", fails(sign, s, key(THERE)), fails(sign, new(TCP), key(THERE)))
        continue
    connecting(name, key, HERE, THERE)
    connecting(f"{name}, IPv6", key, HERE6, THERE6)
    listening(name, key)
    restricted(name, key)
