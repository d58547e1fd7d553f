#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""House rule: who may include whom, and that no headers form a circle.

base < fmt, policy, io < net, gpu < tier < store < daemon; fsck sees base, fmt, io; plan sees base, policy;
the CLI sees cairn.h, fsck and plan; plugins, examples, python, bench, the C++ and the end-to-end tests see cairn.h alone.
Every room sees itself and cairn.h. cairn.h includes nothing but std*.h. Other tests see everything.
"""
import os
import re

from rules import Report, read, tree_files

LOW = {"base", "fmt", "policy", "io", "net", "gpu"}
SEES = {
    "base": set(),
    "fmt": {"base"},
    "policy": {"base"},
    "io": {"base"},
    "net": {"base", "fmt", "policy", "io"},
    "gpu": {"base", "fmt", "policy", "io"},
    "tier": LOW,
    "store": LOW | {"tier"},
    "daemon": LOW | {"tier", "store"},
    "fsck": {"base", "fmt", "io"},
    "plan": {"base", "policy"},
    "cli": {"fsck", "plan"},
}
# It replays a trace through a real store on the trace's own clock, which cairn.h has no word for.
INSIDE = ("bench/policy_real.c", "bench/policy_real.h")
OUTSIDE = ("plugins/", "examples/", "python/", "bench/", "tests/e2e/", "tests/cxx/")
PUBLIC = "include/cairn/cairn.h"
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.M)


def resolve(path, quote, name, files):
    """The file of the tree that an include means, or None: a system header."""
    if name == "cairn/cairn.h":
        return PUBLIC
    candidates = [os.path.join(os.path.dirname(path), name)] if quote == '"' else []
    candidates += [os.path.join("src", name), os.path.join("tests", name), name]
    for candidate in map(os.path.normpath, candidates):
        if candidate in files:
            return candidate
    return None


def check_include(report, path, line, name, quote, target):
    where = path.split("/")
    if path == PUBLIC:
        if not re.fullmatch(r"std\w+\.h", name):
            report.add(path, line, f"cairn.h includes nothing but std*.h, not {name}")
        return
    if target is None:
        if quote == '"' and path.startswith(("src/", "tests/")):
            report.add(path, line, f'"{name}" is not a file of the tree (from src/)')
        return
    if ".." in name.split("/"):
        report.add(path, line, f'"{name}": name headers from src/, as "room/file.h"')
    if target == PUBLIC:
        return
    if path in INSIDE or (path, target) == ("src/cli/bench_policy.c", INSIDE[1]):
        return
    if path.startswith(OUTSIDE):
        if not target.startswith(os.path.dirname(path) + "/") and not target.startswith("plugins/"):
            report.add(path, line, f"{path} sees cairn.h and its own headers alone, not {target}")
    elif where[0] == "src":
        room = where[1]
        seen = target.split("/")[1] if target.startswith("src/") else target
        if room not in SEES:
            report.add(path, line, f"the room src/{room} has no place among the layers (tools/check-layers.py)")
        elif seen != room and seen not in SEES[room]:
            allowed = ", ".join(sorted(SEES[room] | {room})) + " and cairn.h"
            report.add(path, line, f"src/{room} may not include {target}; it sees {allowed}")


def check_circles(report, edges):
    state = {}

    def visit(path, trail):
        state[path] = "open"
        for target, line in edges.get(path, []):
            if state.get(target) == "open":
                circle = trail[trail.index(target):] + [target]
                report.add(path, line, "headers form a circle: " + " -> ".join(circle))
            elif target not in state:
                visit(target, trail + [target])
        state[path] = "done"

    for path in sorted(edges):
        if path not in state:
            visit(path, [path])


def main():
    report = Report()
    files = set(tree_files())
    edges = {}
    for path in sorted(files):
        if not path.endswith((".c", ".h", ".cc")):
            continue
        text = re.sub(r"/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m.group(0)), read(path) or "", flags=re.S)
        for match in INCLUDE.finditer(text):
            quote, name = match.groups()
            line = text.count("\n", 0, match.start()) + 1
            target = resolve(path, quote, name, files)
            check_include(report, path, line, name, quote, target)
            if target and path.endswith(".h"):
                edges.setdefault(path, []).append((target, line))
    check_circles(report, edges)
    report.finish()


main()
