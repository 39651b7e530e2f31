#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""memory.py GROUP: what BPF programs of a control group do to calls that reach a memory node; in host B.

Node 1:1 is at host A, and so is 1:2, by an address of IPv6, but not served.
"""

import errno
import os
import subprocess
import sys

import bpf

sys.path.insert(0, "/zrs/userspace/examples")
from zrs_mem import opened

GROUP = sys.argv[1]
A, B = os.environ["ADDR_A"], os.environ["ADDR_B"]
DENY, ALLOW = bpf.returns(0), bpf.returns(1)


def check(name, seen, want):
    if seen == want:
        print(f"ok - {name}", flush=True)
    else:
        print(f"not ok - {name}: expected {want}, got {seen}", flush=True)


def asked(*args):
    """What `zrs mem` says: "done", or why it fails."""
    done = subprocess.run(["zrs", "mem", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    asked.out = done.stdout.strip()
    if done.returncode == 0:
        return "done"
    return "EPERM" if os.strerror(errno.EPERM).lower() in done.stderr else done.stderr.strip()


def alloc(node="1:1"):
    return asked("alloc", node, "64K")


def get(region):
    return asked("get", region, "/dev/null")


bpf.join(GROUP)
check("without programs a region is allocated", alloc(), "done")
region = asked.out
fd = opened(region)
there = bpf.load(2, 1, bpf.USER_IP4) + bpf.skip_if("==", 2, bpf.be32(A), 2)
for name, where, code in (
    ("connect()", bpf.CONNECT, DENY),
    ("connect() to that address", bpf.CONNECT, there + bpf.returns(1) + DENY),
    ("connect() to another address", bpf.CONNECT,
     bpf.mov(2, bpf.be32(B)) + bpf.store(1, bpf.USER_IP4, 2) + bpf.returns(1)),
    ("socket()", bpf.SOCK_CREATE, DENY),
    ("the packets that go out", bpf.EGRESS, DENY),
    ("the packets that come in", bpf.INGRESS, DENY),
):
    with bpf.attached(GROUP, (where, code)):
        check(f"{name}: alloc", alloc(), "EPERM")
        check(f"{name}: open", get(region), "EPERM")
        check(f"{name}: what is open is read", len(os.pread(fd, 65536, 0)), 65536)
with bpf.attached(GROUP, (bpf.CONNECT, ALLOW), (bpf.EGRESS, ALLOW)):
    check("programs that allow it", (alloc(), get(region)), ("done", "done"))
with bpf.attached(GROUP, (bpf.CONNECT6, DENY)):
    check("those of IPv6 do not count for IPv4", alloc(), "done")
    check("but for a node with such an address", alloc("1:2"), "EPERM")
with bpf.attached(GROUP, (bpf.CONNECT, DENY)), bpf.outside(GROUP):
    check("nor for tasks outside of the group", alloc(), "done")
