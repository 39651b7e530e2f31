#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The figures of `/dev/zrs` as root, an ordinary user and root of a user namespace see them, in hosts A and B and in
the first network namespace."""

import json
import os
import socket
import subprocess
import sys
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib"))
from hosts import PATIENCE, SCALE, SOL_ZRS, ZRS, becomes, check, host, skip

ZRS_TCP, NEVER, AUTO = 3, 0, 1
A, B = os.environ["ADDR_A"], os.environ["ADDR_B"]
NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
# What ZRS_IOC_STATS tells of a network namespace.
TOLD = {"tx_bytes", "rx_bytes", "sockets", "channels", "links", "pool_bytes", "pool_used"}
LARGE = 1 << 20


def zrs(where, *args, by=()):
    """What the command says in a host ("-": the first network namespace), as another user."""
    here = ["nsenter", "--net=/proc/1/ns/net"] if where == "-" else ["/run/netns-exec", f"zrs{where}"]
    said = subprocess.run([*here, *by, "zrs", *args, "--json"], check=True, capture_output=True, text=True).stdout
    return json.loads(said)


def counted(where, by=NOBODY):
    """The counters that are not 0, without the version and the connects by TCP."""
    stats = zrs(where, "stats", by=by)
    return {name: n for name, n in stats.items() if name not in ("version", "features", "tcp") and n}


def devices(where, by=NOBODY):
    """Of each device: its windows, and whether anything is told of its blocks."""
    pool = zrs(where, "pool", by=by)
    told = lambda p: p["blocks"] + p["blocks_low"] + p["blocks_held"] > 0
    return len(pool["caches"]), {p["device"]: (p["windows"], told(p)) for p in pool["pools"]}


def pair(mode=NEVER):
    with host("B"):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, ZRS)
    listener.bind((B, 0))
    listener.listen()
    c = socket.socket(socket.AF_INET, socket.SOCK_STREAM, ZRS)
    c.connect(listener.getsockname())
    s, _ = listener.accept()
    return listener, c, s


def receive(s, n):
    while n:
        n -= len(s.recv(n))


def steady(call):
    """What `call` returns when that has not changed for half a second, or after a while."""
    late, seen = time.monotonic() + 20 * PATIENCE, call()
    while time.monotonic() < late:
        time.sleep(0.5 * SCALE)
        before, seen = seen, call()
        if seen == before:
            break
    return seen


listener, c, s = pair()
# Unread data, most of it in a window.
c.setblocking(False)
sent = 0
try:
    while sent < LARGE:
        sent += c.send(bytes(LARGE - sent))
except BlockingIOError:
    pass
c.setblocking(True)
becomes(lambda: devices("B", by=())[1]["rxeB"][0], 1)

# The machine's.
caches, pools = devices("A", by=())
check("root sees caches, and the pools of both hosts in A", (caches > 0, sorted(pools)), (True, ["rxeA", "rxeB"]))
check("and in the first network namespace", sorted(devices("-", by=())[1]), ["rxeA", "rxeB"])
machine = counted("A", by=())
check("and the sockets of both hosts", machine["sockets"], 3)
check("and more than is told to others", set(machine) > TOLD - {"rx_bytes"}, True)

# Another user's.
check("an ordinary user in A sees A's pool alone, without caches", devices("A"), (0, {"rxeA": (0, False)}))
check("in B that of B, with the window of a socket there", devices("B"), (0, {"rxeB": (1, False)}))
check("in the first network namespace none", devices("-"), (0, {}))
own = {where: counted(where) for where in "AB"}
for where, n in ("A", 1), ("B", 2):
    check(f"in {where} nothing of the module as a whole", set(own[where]) - TOLD, set())
    check("its sockets and channels", (own[where]["sockets"], own[where]["channels"]), (n, 1))
    check("its links", own[where]["links"], len(zrs(where, "links", by=NOBODY)["links"]))
check("the bytes of A's links, and not of B's", own["A"]["tx_bytes"] >= sent > 0 == own["B"].get("tx_bytes", 0), True)
check("in the first network namespace there is nothing to count", counted("-"), {})
table = zrs("A", "links", by=NOBODY)["table"]
check("of the link table the sizes, and A's channels", (table["most"] > 0, table["entries"], table["hits"]), (True, 1, 0))
for what in "peers", "key":
    refused = subprocess.run([*NOBODY, "zrs", what, "list", "--counts"], capture_output=True, text=True)
    check(f"zrs {what} list --counts: refused", (refused.returncode != 0, "not permitted" in refused.stderr), (True, True))
    check("not for root", subprocess.run(["zrs", what, "list", "--counts"], capture_output=True).returncode, 0)

# Root of a user namespace, in A and in a network namespace of its own.
user = ["setpriv", "--reuid", "1000", "--clear-groups", "unshare", "--user", "--map-root-user"]
if subprocess.run([*user, "true"], capture_output=True).returncode:
    skip("root of a user namespace", "users cannot make any")
else:
    check("root of a user namespace sees A's pool alone", devices("A", by=user), (0, {"rxeA": (0, False)}))
    check("and A's sockets", counted("A", by=user)["sockets"], 1)
    check("in a network namespace of its own nothing", counted("A", by=[*user, "--net"]), {})

# Connects that TCP carries.
with host("B"):
    plain = socket.create_server((B, 0))
t = socket.socket(socket.AF_INET, socket.SOCK_STREAM, ZRS)
t.setsockopt(SOL_ZRS, ZRS_TCP, AUTO)
t.connect(plain.getsockname())
by_why = lambda where: {why: n for why, n in zrs(where, "stats", by=NOBODY)["tcp"]["by_why"].items() if n}
check("a connect by TCP counts in A", by_why("A"), {"no-listener": 1})
check("and not in B", by_why("B"), {})
t.close()

# A message that is not signaled: only those to whom the socket belongs make the link ask for its completion.
receive(s, sent)
requests = lambda: counted("A", by=())["work_requests"]
queued = lambda by=(): sum(x["tx_queued"] for x in zrs("A", "ss", by=by))


def unknown_end():
    """Sends until the end of what was sent is not known: the machine's work requests by then."""
    for _ in range(20):
        steady(requests)
        c.send(b"small")
        receive(s, 5)
        posted = steady(requests)
        # Now and then one is signaled.
        if queued(NOBODY):
            break
    return posted


for _ in range(5):
    late = unknown_end()
    zrs("A", "ss", by=NOBODY)
    now = requests()
    # On a busy machine a link's own message may come in between.
    if now == late:
        break
check("another user's list sends nothing", now, late)
check("the end of what was sent is not known", queued(NOBODY) > 0, True)
check("root's does, and then it is known", becomes(queued, 0), 0)
check("by a message", requests() > late, True)

# What links carried counts when they have ended.
before = counted("A")["tx_bytes"]
for each in c, s, listener:
    each.close()
check("the links end", becomes(lambda: counted("A").get("links", 0), 0), 0)
check("their bytes count", becomes(lambda: counted("A").get("tx_bytes"), before), before)
