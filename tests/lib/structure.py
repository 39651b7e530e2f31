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

# The compiler tells of code without a caller. The generated bindings have more than is used.
found(r"allow\([^)]*\bdead_code", "hides code that is not used", but=["rust/bindings.rs"])
# The kernel's Arc is a receiver.
found(r"fn \w+(?:<[^(]*>)?\(\s*(?!self\b)\w+: &(?:'\w+ )?Arc<Self>", "a method takes self: &Arc<Self>")
# Work items have names.
found(r"\b(?:WorkItem<|Work<\w+, |HasWork<Self, |HasDelayedWork<Self, )\d", "a work item has a name")
# One place changes a socket's phase.
found(r"\.phase = (?!phase;)", "only set_phase() changes the phase")

print(*errors, sep="\n", end="\n" if errors else "")
sys.exit(bool(errors))
