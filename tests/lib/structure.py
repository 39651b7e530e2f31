#!/usr/bin/python3
"""Checks what keeps the module's source in order.
  structure.py
Prints a line for each thing found; exit status 1 if there is one.
"""
import glob
import re
import sys

FILES = sorted(glob.glob("rust/**/*.rs", recursive=True))
# Without comments: these are not code.
CODE = {path: re.sub(r"//[^\n]*", "", open(path, encoding="utf-8").read()) for path in FILES}
errors = []


def found(pattern, what, but=()):
    """Each place in the code that matches is an error."""
    for path, code in CODE.items():
        if path not in but:
            for match in re.finditer(pattern, code):
                line = code.count("\n", 0, match.start()) + 1
                errors.append(f"{path}:{line}: {what}: {' '.join(match[0].split())}")


# A C helper has a caller.
prototypes = "".join(open(path, encoding="utf-8").read() for path in glob.glob("rust/helpers/*.h"))
words = set(re.findall(r"\w+", "\n".join(CODE.values())))
for name in sorted(set(re.findall(r"\bzrs_helper_(\w+)\(", prototypes)) - words):
    errors.append(f"rust/helpers: {name}() has no caller")

# The compiler tells of code without a caller. rust/bindings.rs includes what bindgen makes of C's
# headers: with each type come its constants, and more types, than the module uses.
found(r"allow\([^)]*\bdead_code", "hides code that is not used", but=["rust/bindings.rs"])
# The kernel's Arc is a receiver.
found(r"fn \w+(?:<[^(]*>)?\(\s*(?!self\b)\w+: &(?:'\w+ )?Arc<Self>", "a method takes self: &Arc<Self>")
# Work items have names.
found(r"\b(?:WorkItem<|Work<\w+, |HasWork<Self, |HasDelayedWork<Self, )\d", "a work item has a name")
# One place changes a socket's phase.
found(r"\.phase = (?!phase;)", "only set_phase() changes the phase")

# Comments are at most 100 columns wide. Requirements have their numbers in the documents and the tests.
for path in FILES:
    for number, line in enumerate(open(path, encoding="utf-8"), 1):
        comment = re.search(r"(?:^|[\s;,{}()])//.*", line.rstrip("\n"))
        if comment and len(line.rstrip("\n")) > 100:
            errors.append(f"{path}:{number}: a comment beyond column 100")
        if comment and re.search(r"\brows? [A-Z]\d", comment[0]):
            errors.append(f"{path}:{number}: names a row of the requirements")

# State is handed from caller to callee. These stand alone, and why.
STATICS = {
    # Tables that nothing changes.
    "kern/area.rs": "TABLE",
    "kern/regfile.rs": "PSEUDO INODE_OPS",
    "params.rs": "NET",
    # Parameters, each with what the kernel reads of it in the module's sections; and the way from a
    # write in sysfs to the module.
    "kern/param.rs": "$static OPS ENTRY TYPE DESC LIVE",
    # The kernel registers these by address, and calls back without a context.
    "kern/pernet.rs": "OPS CONTEXT",
    "kern/sysctl.rs": "OPS ID TAKEN SETTINGS",
    "kern/sock/family.rs": "STREAM DATAGRAM ALIVE",
    "ib/device.rs": "CLIENT",
    # Points of fault injection, and what the tests set there.
    "kern/fault/points.rs": "$static ALL",
    "kern/fault/inject.rs": "BUDGET RUNS",
    "ib/cm/inject.rs": "ACCEPTING AT EVENT STATUS LEFT",
    # Counters of the module, and quantities that have one limit for the machine: main memory that is
    # promised, pages that are pinned.
    "stats.rs": "STATS FALLBACKS",
    "ib/mr.rs": "LOST",
    "pool/reserve.rs": "PROMISED REFUSED",
    "kern/pin.rs": "HELD",
    # The lock of searches for contiguous memory, of which there is one in the machine.
    "kern/contig.rs": "SEARCH DONE",
    # Where the next search for a free source port begins, and the last number of a link.
    "qp_link/id.rs": "NEXT",
    "transport/link.rs": "LAST",
}
declared = {}
for path, code in CODE.items():
    for name in re.findall(r"(?<!')\bstatic (?:mut )?(\$?\w+)\s*:", code):
        declared.setdefault(path[len("rust/"):], set()).add(name)
for path in declared | STATICS:
    now, known = declared.get(path, set()), set(STATICS.get(path, "").split())
    for name in sorted(now ^ known):
        text = "is a static without a reason in" if name in now else "is gone; it is in"
        errors.append(f"rust/{path}: {name} {text} tests/lib/structure.py")

# The folders of rust/, each with those that it may use; "proto.runs" stands for that module alone.
USES = {
    "bindings": "",
    "proto": "",
    "kern": "bindings proto.runs",
    "ib": "bindings kern",
    "uapi": "kern",
    "stats": "kern",
    "params": "kern proto",
    "pool": "ib kern params proto stats uapi",
    "qp_link": "ib kern params proto stats",
    "transport": "ib kern params pool proto qp_link stats uapi",
    "socket": "kern params pool proto stats transport uapi",
    "dgram": "kern params proto socket.owner socket.ports socket.tcp stats transport uapi",
    "memnode": "ib kern params proto qp_link stats transport uapi",
    "module": "dgram ib kern memnode params pool socket transport",
    "ctl": "dgram ib kern memnode params pool proto socket stats transport uapi",
    "zrs_main": "bindings ctl dgram ib kern memnode module params pool socket transport",
}
# Macros stand in the crate's root, wherever they are written.
MACROS = set(re.findall(r"#\[macro_export\]\s*macro_rules! (\w+)", "".join(CODE.values())))


def paths(tree):
    """The paths that a tree of `use` names."""
    before, brace, inside = tree.partition("{")
    if not brace:
        return [tree.split(" as ")[0].strip()]
    found_paths, depth, part = [], 0, ""
    for char in inside[: inside.rindex("}")] + ",":
        depth += (char == "{") - (char == "}")
        if char == "," and depth == 0:
            found_paths += paths(before.strip() + part.strip()) if part.strip() else []
            part = ""
        else:
            part += char
    return found_paths


def imports(path):
    """The modules of this crate that a file names, from the root on."""
    own = path[len("rust/"):-len(".rs")].split("/")
    own = own[:-1] if own[-1] == "mod" else own
    code = CODE[path]
    # At the beginning of a line: a string may have the word, too.
    use = re.compile(r"(?m)^\s*(?:pub(?:\([^)]*\))?\s+)?use\s+([^;]+);")
    uses = [" ".join(tree.split()) for tree in use.findall(code)]
    named = re.findall(r"\b(?:crate|super|self)(?:::\w+)+", use.sub("", code))
    for name in named + [one for tree in uses for one in paths(tree)]:
        parts = name.split("::")
        if parts[0] in ("crate", "$crate"):
            yield parts[1:]
        elif parts[0] in ("super", "self"):
            at = own[:]
            while parts and parts[0] in ("super", "self"):
                at = at[:-1] if parts.pop(0) == "super" else at
            yield at + parts


needed = {}
for path in FILES:
    room = path[len("rust/"):].split("/")[0].removesuffix(".rs")
    if room not in USES:
        errors.append(f"{path}: tests/lib/structure.py does not know what {room} may use")
        continue
    # In the root file the folders are named as they are.
    roots = re.findall(r"(?m)^use (\w+)::", CODE[path]) if room == "zrs_main" else []
    for to in [*imports(path), *([root] for root in roots if root in USES)]:
        if not to or to[0] == room or to[0] in MACROS or to[0] not in USES:
            continue
        needed.setdefault((room, to[0]), set()).add(path)
        may = USES[room].split()
        if to[0] not in may and ".".join(to[:2]) not in may:
            errors.append(f"{path}: {room} uses {'::'.join(to)}")
# No circle: what a folder uses, directly or not, does not use it.
for room in USES:
    reached, todo = set(), [room]
    while todo:
        here = todo.pop()
        for a, b in needed:
            if a == here and b not in reached:
                reached.add(b)
                todo.append(b)
    if room in reached:
        errors.append(f"rust/: {room} is in a circle of folders")

print(*errors, sep="\n", end="\n" if errors else "")
sys.exit(bool(errors))
