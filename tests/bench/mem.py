#!/usr/bin/python3
"""Judges the samples of tests/bench/mem and tests/bench/machines: a table of the medians, a line for each target,
and rows for `make bench-check`.
  mem.py one|machines SAMPLES --out ROWS --commit COMMIT --kernel RELEASE
"""
import argparse
import collections
import json
import statistics

# Rounds below which nothing is met or missed.
FEWEST = 7

# The name of a target, its rows, what is measured, what it is divided by, which side of which figure is good ("":
# it has no target), and why it is missed, as far as that is known.
Target = collections.namedtuple("Target", "name rows ours theirs side goal cause")
ONE = (
    Target("copy of 16 MiB from node to node, of a relay by the requester", "M2", "copy", "relay", ">=", 1.7, ""),
    Target("put of 1 MiB, 8 at a time, of ib_send_bw by events", "M3", "put", "ib_send_bw", ">=", 0.9, ""),
    Target("get of 1 MiB, 8 at a time, of ib_read_bw by events", "M3", "get", "ib_read_bw", ">=", 0.9, ""),
    Target("copies of 64 KiB by a queue, of calls", "M2", "queued 64 KiB", "calls of 64 KiB", ">=", 3,
           "each copy waits for the acknowledgement behind it, and an emulated device has no idle time to fill"),
    Target("get of 4 KiB, of ib_read_lat by events", "M3", "get 4 KiB", "ib_read_lat", "<=", 1.5,
           "a worker has to be woken for the completion, and it wakes the caller"),
    Target("time to quiet, microseconds", "M4", "free under load", None, "<=", 50_000,
           "remote keys are invalidated behind the bytes that are under way, up to 4 MiB"),
    Target("bytes through the requester for a GiB copied", "M2", "bytes through the requester, a GiB", None, "<=",
           320 << 10, ""),
)
MACHINES = (
    Target("copy of 64 MiB, of a relay by the requester", "M2", "copy", "relay", ">=", 1.7, ""),
    Target("copy of 64 MiB, of a relay over NVMe-oF", "M2", "copy", "NVMe-oF relay", ">=", 1.7, ""),
    Target("round trip of a datagram of 64 bytes, of RDS", "Z7", "datagram 64 B", "RDS 64 B", "", None, ""),
)


def figures(target, samples):
    """The figure of each round, as far as both sides have one."""
    ours = samples.get(target.ours, [])
    if target.theirs is None:
        return ours
    theirs = samples.get(target.theirs, [])
    return [a / b for a, b in zip(ours, theirs)] if len(ours) == len(theirs) else []


def judged(target, values):
    if len(values) < FEWEST:
        return "undecided"
    low, high = min(values), max(values)
    met, missed = (low >= target.goal, high < target.goal) if target.side == ">=" else (high <= target.goal, low > target.goal)
    return "met" if met else "missed" if missed else "undecided"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("which", choices=("one", "machines"))
    parser.add_argument("samples")
    for name in "out", "commit", "kernel":
        parser.add_argument(f"--{name}", required=True)
    args = parser.parse_args()
    samples, units = collections.defaultdict(list), {}
    with open(args.samples, encoding="utf-8") as lines:
        for line in lines:
            sample = json.loads(line)
            samples[sample["what"]].append(sample["value"])
            units[sample["what"]] = sample["unit"]
    for what, values in samples.items():
        print(f"{what:36} {statistics.median(values):12.1f} {units[what]:6} ({min(values):.1f} to {max(values):.1f}, "
              f"{len(values)} rounds)")
    print()
    rows = []
    for target in ONE if args.which == "one" else MACHINES:
        values = figures(target, samples)
        row = dict.fromkeys(("value", "low", "high", "goal", "bound", "target", "verdict", "met", "note", "seed", "confidence"))
        row |= {"name": target.name, "rows": [target.rows], "unit": "ratio" if target.theirs else units.get(target.ours),
                "reference": target.theirs, "rounds": len(values), "kernel": args.kernel, "commit": args.commit,
                "cause": target.cause or None}
        text = "not measured"
        if values:
            row |= {"value": statistics.median(values), "low": min(values), "high": max(values)}
            text = f"{row['value']:.2f} ({row['low']:.2f} to {row['high']:.2f})"
        if target.side:
            verdict = judged(target, values)
            goal = f"{target.side} {target.goal}"
            row |= {"goal": goal, "bound": goal, "target": goal, "verdict": verdict,
                    "met": {"met": True, "missed": False}.get(verdict)}
            text += f", goal {goal}: {verdict}"
        print(f"{target.name}: {text}")
        rows.append(row)
    with open(args.out, "w", encoding="utf-8") as out:
        json.dump(rows, out, indent=2)
        out.write("\n")


main()
