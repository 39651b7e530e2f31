# SPDX-License-Identifier: GPL-2.0
"""Rules of nftables that drop packets, by netlink: what the sockets of a user send, or what a host gets."""

import contextlib
import os
import socket
import struct

NETLINK_NETFILTER, NFPROTO_INET, NFTABLES = 12, 1, 10
BEGIN, END = 16, 17
NEW_TABLE, DEL_TABLE, NEW_CHAIN, NEW_RULE = 0, 2, 3, 6
REQUEST, ACK, CREATE = 1, 4, 0x400
LOCAL_IN, LOCAL_OUT, SKUID, REG, ACCEPT, DROP = 1, 3, 10, 1, 1, 0
OVER = 1
NESTED = 0x8000


def attr(kind, value):
    if isinstance(value, str):
        value = value.encode() + b"\0"
    if isinstance(value, int):
        value = struct.pack(">I", value)
    return struct.pack("HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def nest(kind, *attrs):
    return attr(kind | NESTED, b"".join(attrs))


def message(kind, flags, family, res, body=b""):
    return struct.pack("IHHIIBBH", 20 + len(body), kind, flags, 0, 0, family, 0, socket.htons(res)) + body


def batch(*requests):
    """Each is the number of a request and its attributes. OSError if the kernel does not have it."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER) as s:
        s.settimeout(20)
        send = message(BEGIN, REQUEST, 0, NFTABLES)
        for kind, *attrs in requests:
            send += message(NFTABLES << 8 | kind, REQUEST | ACK | CREATE, NFPROTO_INET, 0, b"".join(attrs))
        s.sendto(send + message(END, REQUEST, 0, NFTABLES), (0, 0))
        for _ in requests:
            error = struct.unpack_from("i", s.recv(65536), 16)[0]
            if error:
                raise OSError(-error, os.strerror(-error))


def expression(name, *attrs):
    return nest(1, attr(1, name), nest(2, *attrs))


@contextlib.contextmanager
def dropping(hook, *expressions):
    """Packets of `hook` in this network namespace that the expressions match are dropped. The rule goes from the
    namespace in which the block ends."""
    table = "zrstest"
    batch(
        (NEW_TABLE, attr(1, table)),
        (NEW_CHAIN, attr(1, table), attr(3, "all"), nest(4, attr(1, hook), attr(2, 0)), attr(5, ACCEPT), attr(7, "filter")),
        (
            NEW_RULE,
            attr(1, table),
            attr(2, "all"),
            nest(4, *expressions, expression("immediate", attr(1, 0), nest(2, nest(2, attr(1, DROP))))),
        ),
    )
    try:
        yield
    finally:
        batch((DEL_TABLE, attr(1, table)))


def dropped(uid):
    """What the sockets of `uid` send in this network namespace is dropped."""
    # The user's number is in the host's order.
    same = expression("cmp", attr(1, REG), attr(2, 0), nest(3, attr(1, struct.pack("=I", uid))))
    return dropping(LOCAL_OUT, expression("meta", attr(1, REG), attr(2, SKUID)), same)


def dropped_after(size):
    """What this network namespace gets is dropped, after packets of `size` bytes in all."""
    return dropping(LOCAL_IN, expression("quota", attr(1, struct.pack(">Q", size)), attr(2, OVER)))
