#!/usr/bin/python3
"""The medians of tests/bench/mem and tests/bench/machines, and what they are compared with.
  mem.py one|machines SAMPLES
"""
import collections
import json
import statistics
import sys

# Of what, divided by what, and the target; and of what, what it may be a multiple of, and of that how much.
ONE = (
    (
        ("copy", "relay", 1.7, "a copy by the nodes, beside a relay by the requester"),
        ("put", "ib_send_bw", 0.9, "put of 1 MiB, 8 at a time, beside ib_send_bw --events"),
        ("get", "ib_read_bw", 0.9, "get of 1 MiB, 8 at a time, beside ib_read_bw --events"),
        ("queued 64 KiB", "calls of 64 KiB", 3, "copies of 64 KiB by a queue, beside calls"),
    ),
    (
        ("get 4 KiB", "ib_read_lat", 1.5, "get of 4 KiB, beside ib_read_lat --events"),
        ("free under load", None, 50_000, "time to quiet, microseconds"),
        ("bytes through the requester, a GiB", None, 320 << 10, "bytes through the requester for a GiB copied"),
    ),
)
MACHINES = (
    (
        ("copy", "relay", 1.7, "a copy by the nodes, beside a relay by the requester"),
        ("copy", "NVMe-oF relay", 1.7, "a copy by the nodes, beside a relay by the requester over NVMe-oF"),
    ),
    # Shown, without a target.
    (("datagram 64 B", "RDS 64 B", None, "round trip of a datagram of 64 bytes, beside RDS"),),
)
TARGETS, LIMITS = {"one": ONE, "machines": MACHINES}[sys.argv[1]]

samples = collections.defaultdict(list)
units = {}
with open(sys.argv[2], encoding="utf-8") as lines:
    for line in lines:
        sample = json.loads(line)
        samples[sample["what"]].append(sample["value"])
        units[sample["what"]] = sample["unit"]
for what, values in samples.items():
    median, low, high = statistics.median(values), min(values), max(values)
    print(f"{what:36} {median:12.1f} {units[what]:6} ({low:.1f} to {high:.1f}, {len(values)} rounds)")
print()
for least, rows in ((True, TARGETS), (False, LIMITS)):
    for what, beside, bound, text in rows:
        if what not in samples or beside and beside not in samples:
            print(f"not measured: {text}")
            continue
        figure = statistics.median(samples[what]) / (statistics.median(samples[beside]) if beside else 1)
        if bound is None:
            print(f"{text}: {figure:.2f}")
            continue
        verdict = "met" if (figure >= bound if least else figure <= bound) else "MISSED"
        print(f"{text}: {figure:.2f}, {'at least' if least else 'at most'} {bound}: {verdict}")
