#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Keys of hosts A and B that are revoked, expire, and are replaced."""

import ctypes
import ipaddress
import os
import select
import subprocess
import sys
import threading

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tcp"))
from connect import A, B, BY_ZRS, NEVER, check, host
from hosts import becomes
from keys import NEW, OF, OLD, OTHER, add, answer, at_rest, counted, cut, echo, pair, refused, remove, server, zrs

# <linux/keyctl.h>
SYS_KEYCTL, USER = 250, -4
REVOKE, SEARCH, SET_TIMEOUT, INVALIDATE = 3, 10, 15, 21
NET = str(ipaddress.ip_network(OF["A"], strict=False))
libc = ctypes.CDLL(None, use_errno=True)


def keyctl(op, *words):
    done = libc.syscall(SYS_KEYCTL, op, *words)
    if done < 0:
        raise OSError(ctypes.get_errno(), f"keyctl {op}")
    return done


def serial(name="k"):
    """The number of the key that was added last by this name, by either host."""
    return keyctl(SEARCH, USER, b"logon", f"zrs:{name}".encode(), 0)


def says(where):
    return zrs(where, "key", "list").strip().splitlines()


def fails_by_name(where, name="k"):
    """What the command says if it takes the secret from the keyring."""
    with host(where):
        done = subprocess.run(["zrs", "key", "add", OF[where], name], capture_output=True, check=False)
    return done.returncode, done.stderr.decode().strip()


def ends(name, v4, back, end, word):
    """`end` makes the key of B useless; `word` is what the list says then."""
    add("A", OLD)
    add("B", OLD)
    live, s = pair(v4)
    end(serial())
    useless = [f"{NET} k # {word}: no links"]
    check(f"{name}: the list says so", becomes(lambda: says("B"), useless), useless)
    check(f"{name}: not at A", says("A"), [f"{NET} k"])
    check(f"{name}: the connection stays", echo(live, s, b"x" * 10000), True)
    cut()
    refused(f"{name} there", v4, ("key unusable", "ended by peers"))
    before = at_rest()
    check(f"{name} here", answer(back, NEVER, "B"), "EACCES")
    counted(f"{name} here: counted", before, {"key unusable": 1, "ended by peers": 1})
    rc, said = fails_by_name("B")
    check(f"{name}: not taken again", (rc, f"zrs key add {NET} k --file FILE" in said), (1, True))
    check(f"{name}: the list is as before", len(says("B")), 1)
    add("B", OLD)
    check(f"{name}: a new one takes its place", (says("B"), answer(v4, NEVER)), ([f"{NET} k"], (BY_ZRS, 0)))
    for where in "AB":
        remove(where)
    cut()


def beside_another(v4):
    """Of two keys one ends: the other one makes links."""
    for where in "AB":
        add(where, OLD)
        add(where, NEW, "new")
    keyctl(REVOKE, serial())
    check("one of two is revoked", says("B"), [f"{NET} k # revoked: no links", f"{NET} new"])
    cut()
    before = at_rest()
    check("the other one is right", answer(v4, NEVER), (BY_ZRS, 0))
    counted("the other one is right: proved at both ends", before, {"proved": 2})
    keyctl(REVOKE, serial("new"))
    cut()
    refused("both are revoked", v4, ("key unusable", "ended by peers"))
    for where in "AB":
        remove(where)
    cut()


def replaced(v4):
    add("A", OLD)
    add("B", OLD)
    live, s = pair(v4)
    add("B", OTHER)
    check("replaced: one key", says("B"), [f"{NET} k"])
    check("replaced: the connection stays", echo(live, s, b"x" * 10000), True)
    cut()
    refused("replaced at one", v4, ("another key", "ended by peers"))
    add("A", OTHER)
    check("replaced at both", answer(v4, NEVER), (BY_ZRS, 0))
    # The network of the host alone decides, until its last key is gone.
    add("B", NEW, "own", net=f"{A}/32")
    cut()
    refused("another key for the host alone", v4, ("another key", "ended by peers"))
    remove("B", net=f"{A}/32")
    check("its last key is gone", answer(v4, NEVER), (BY_ZRS, 0))
    for where in "AB":
        remove(where)
    cut()


def meanwhile(v4, change, rounds):
    """What became of links that were made while keys changed: `change` gets the number of the round, and the list."""
    seen, stop = [], threading.Event()

    def connect():
        while not stop.is_set():
            seen.append(answer(v4, NEVER))
            cut()
            # Or the queue is full in the end.
            while select.select([v4], [], [], 0)[0]:
                v4.accept()[0].close()

    thread = threading.Thread(target=connect)
    thread.start()
    try:
        for n in range(rounds):
            change(n, seen)
    finally:
        stop.set()
        thread.join()
    return seen


def being_made(v4):
    secrets = (OLD, NEW)
    for where in "AB":
        add(where, OLD, "k0")

    def rotate(n, seen):
        old, new = n % 2, (n + 1) % 2
        for where in "AB":
            add(where, secrets[new], f"k{new}")
        # The link that is being made then has begun when both hosts had both keys.
        made = len(seen)
        becomes(lambda: len(seen) >= made + 2, True)
        for where in "AB":
            remove(where, f"k{old}")

    seen = meanwhile(v4, rotate, 4)
    check("links are made while keys follow each other", set(seen), {(BY_ZRS, 0)})
    check("several", len(seen) >= 2, True)
    for where in "AB":
        remove(where)

    def swap(n, _seen):
        for where in "AB":
            add(where, (OLD, OTHER)[n % 2])

    swap(0, [])
    seen = meanwhile(v4, swap, 8)
    check("of keys that are exchanged, either is right or none", set(seen) - {(BY_ZRS, 0), "EACCES"}, set())
    before = at_rest()
    check("then the last one is", answer(v4, NEVER), (BY_ZRS, 0))
    counted("then the last one is: proved at both ends", before, {"proved": 2})

    def drop(n, _seen):
        for where in "AB":
            remove(where) if n % 2 == 0 else add(where, OLD)

    seen = meanwhile(v4, drop, 8)
    # A key that comes ends a link without a proof, which may be in the middle of a connect().
    check("of a last key that goes, too", set(seen) - {(BY_ZRS, 0), "EACCES", "ECONNRESET"}, set())
    before = at_rest()
    check("and it is back", answer(v4, NEVER), (BY_ZRS, 0))
    counted("and it is back: proved at both ends", before, {"proved": 2})
    for where in "AB":
        remove(where)
    check("nothing is left", says("A") + says("B"), [])


def main():
    v4, back = server("B", B), server("A", A)
    ends("revoked", v4, back, lambda key: keyctl(REVOKE, key), "revoked")
    ends("expired", v4, back, lambda key: keyctl(SET_TIMEOUT, key, 1), "expired")
    ends("invalidated", v4, back, lambda key: keyctl(INVALIDATE, key), "not usable")
    beside_another(v4)
    replaced(v4)
    being_made(v4)


main()
