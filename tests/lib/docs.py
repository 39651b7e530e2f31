#!/usr/bin/python3
"""Compares the documents with the checkout: paths, selftests and their rows, make targets, module parameters.
  docs.py
Prints a line for each difference; exit status 1 if there is one.
"""
import glob
import os
import re
import sys

DOCS = ["README.md", *sorted(glob.glob("Documentation/*.rst"))]
TEXT = {path: open(path, encoding="utf-8").read() for path in DOCS}
errors = []


def check(ok, line):
    if not ok:
        errors.append(line)


def scripts():
    """The selftests by their names in the documents, with the rows that they say they test."""
    tests = {}
    for path in [p for area in ("selftests/*", "two-vm", "iwarp") for p in glob.glob(f"tests/{area}/*.sh")]:
        rows = re.search(r"^# rows: (.*)$", open(path, encoding="utf-8").read(), re.M)
        if rows:
            area, name = path[:-3].split("/")[-2:]
            tests[f"{area}/{name}"] = rows[1].split()
    return tests


def requirements(text):
    """The last cell of each row: the tests that are named there."""
    rows = re.findall(r"^   \* - ([A-Z]\d+)\n(.*?)(?=^   \* - |^\S|\Z)", text, re.M | re.S)
    return {row: re.split(r"^     -", cells, flags=re.M)[-1] for row, cells in rows}


# Paths of this repository in quotes. A place holder in one (<area>) leaves it unchecked.
for path, text in TEXT.items():
    for name in re.findall(r"`+((?:rust|userspace|tests|uapi|Documentation)/[\w./-]+)`+", text):
        known = os.path.exists(name) or re.search(r"\b(area|name)\b", name) or name == "rust/libkernel.rmeta"
        known = known or re.search(rf"`{re.escape(name)}`+ of the kernel|of\s+the kernel", text[text.index(name):][:200])
        known = known or any(glob.glob(f"{crates}/{name}") for crates in ("userspace/*", "tests/*", "tests/fuzz/*"))
        check(known, f"{path}: there is no {name}")

# Selftests: each is in testing.rst; those in requirements.rst are there and test the row; rows are requirements.
tests = scripts()
named = requirements(TEXT["Documentation/requirements.rst"])
for name, rows in sorted(tests.items()):
    check(f"``{name}``" in TEXT["Documentation/testing.rst"], f"Documentation/testing.rst: {name} is missing")
    for row in rows:
        check(row in named, f"{name}: there is no requirement {row}")
areas = "|".join(sorted({name.split("/")[0] for name in tests}))
for row, cell in named.items():
    for name in re.findall(rf"(?<![\w/])((?:{areas})/[a-z0-9]+)\b(?!/|\.rs)", cell):
        check(name in tests, f"Documentation/requirements.rst: {row}: there is no {name}")
        check(row in tests.get(name, [row]), f"Documentation/requirements.rst: {name} does not name {row}")

# Targets of make.
targets = set(re.findall(r"^([a-z-]+):", open("Makefile", encoding="utf-8").read(), re.M))
for path, text in TEXT.items():
    for name in re.findall(r"`make ([a-z-]+)", text):
        check(name in targets, f"{path}: there is no make {name}")

# Module parameters, their defaults, and the ranges of those that are writable.
source = open("rust/params.rs", encoding="utf-8").read()
params = re.findall(r'^    [A-Z_]+, "([a-z_]+)", ([\d_]+),(?: ([\d_]+), ([\d_]+),)?', source, re.M)
rows = re.findall(r"^   \* - ([a-z_]+)\n     - (\d+)\n(?:     - (\d+) to (\d+))?", TEXT["Documentation/uapi.rst"], re.M)
documented = {name: (default, least, most) for name, default, least, most in rows}
for name, *values in params:
    values = [value.replace("_", "") for value in values]
    shown = documented.get(name, ("nothing",) * 3)
    check(shown[0] == values[0], f"Documentation/uapi.rst: {name} is {values[0]} by default, not {shown[0]}")
    ranges = not values[1] or list(shown[1:]) == values[1:]
    check(ranges, f"Documentation/uapi.rst: {name} is from {values[1]} to {values[2]}, not {shown[1]} to {shown[2]}")

# The parameters for administrators, as zrs set has them.
source = open("userspace/zrs-cli/src/set.rs", encoding="utf-8").read()
listed = re.findall(r'\(\s*"([a-z_]+)",', re.search(r"^const ADMIN.*?^\];", source, re.M | re.S)[0])
text = re.search(r"^For administrators: (.*?)\.$", TEXT["Documentation/uapi.rst"], re.M | re.S)
check(text and re.findall(r"[a-z_]+", text[1]) == listed, "Documentation/uapi.rst: not the parameters of zrs set")

print("\n".join(errors) or f"{len(tests)} selftests, {len(named)} requirements, {len(params)} parameters: all as documented")
sys.exit(bool(errors))
