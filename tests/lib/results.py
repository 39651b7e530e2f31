#!/usr/bin/python3
"""Turns tab-separated results (verdict, name, rows, seconds) into results/<target>.json as the
benchmarks write it: an array of {name, rows, value, unit, reference, target, met, kernel, seed}.
  results.py OUT.json KERNEL SEED IN.tsv...
"""
import json
import sys

out, kernel, seed, *sources = sys.argv[1:]
rows = []
for source in sources:
    try:
        lines = open(source, encoding="utf-8", errors="replace").read().splitlines()
    except FileNotFoundError:
        continue
    for line in lines:
        verdict, name, ids, *_ = line.split("\t") + ["", ""]
        rows.append({
            "name": name, "rows": ids.split(), "value": verdict, "unit": "verdict",
            "reference": None, "target": "pass",
            "met": None if verdict == "skip" else verdict == "pass",
            "kernel": kernel, "seed": seed or None,
        })
with open(out, "w", encoding="utf-8") as f:
    json.dump(rows, f, indent=1)
    f.write("\n")
