#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""House rules that a look at the text can check: sizes, indentation, forbidden calls, names of tests."""
import re

from rules import Report, c_code, read, tree_files

LINES_MAX = 900
COLUMNS_MAX = 120
TAB = 4
SPDX = "SPDX-License-Identifier: Apache-2.0"

UNSAFE = re.compile(r"\b(v?sprintf|strcpy|strcat|gets)\s*\(")
# The library neither prints nor exits. Programs (the CLI) do; check.c says why it aborts.
LOUD = re.compile(r"\b(v?f?printf|puts|fputs|putchar|fputc|perror|_?exit|quick_exit|_Exit|abort)\s*\(")
LOUD_ALLOWED = ("src/cli/", "src/daemon/", "src/base/check.c")
# Allocation goes through mem_*, so that tests can fail the N-th one.
ALLOCATE = re.compile(r"(?<![\w.>])(malloc|calloc|realloc|reallocarray|free|aligned_alloc|posix_memalign|memalign|"
                      r"strdup|strndup|v?asprintf)\s*\(")
# The simulated disk allocates by itself, so that a failing allocation strikes the code under test alone.
ALLOCATE_ALLOWED = ("src/cli/", "src/base/mem.c", "src/io/sim_disk.c")
# Paths of somebody's machine. Spelled in pieces, so that this file does not match itself.
HOME = re.compile(r"(?<![\w.$}/*-])/(?:" + "|".join(["wo" + "rk", "ro" + "ot", "ho" + "me"]) + r")/")

TEXT = (".c", ".h", ".cc", ".md", ".txt", ".cmake", ".sh", ".py", ".json", ".in", ".map", ".mk")
TEST_FUNCTION = re.compile(r"^(?:static\s+)?void\s+(\w+)\s*\(\s*void\s*\*\*\s*\w+\s*\)", re.M)
UNIT_TEST = re.compile(r"\bcmocka_unit_test(?:_\w+)?\s*\(\s*(\w+)")


def line_of(text, at):
    return text.count("\n", 0, at) + 1


def check_calls(report, path, code, pattern, what):
    for match in pattern.finditer(code):
        report.add(path, line_of(code, match.start()), f"{match.group(1)}(): {what}")


def check_lines(report, path, text):
    for number, line in enumerate(text.split("\n"), 1):
        if line != line.rstrip():
            report.add(path, number, "white space at the end of the line")
        if path.endswith((".c", ".h", ".cc")) and len(line.expandtabs(TAB)) > COLUMNS_MAX:
            report.add(path, number, f"longer than {COLUMNS_MAX} columns (a tab is {TAB})")


def check_indent(report, path, code):
    """Tabs indent; spaces align what continues a line. A statement starts after ; { } or a label."""
    before = ";"
    for number, line in enumerate(code.split("\n"), 1):
        text = line.strip()
        indent = line[:len(line) - len(line.lstrip())]
        if not text:
            continue
        if " \t" in indent:
            report.add(path, number, "a tab after spaces in the indentation")
        elif indent.startswith("  ") and before[-1] in ";{}":
            report.add(path, number, "indented by spaces; use tabs")
        if not text.startswith("#"):
            before = text


def check_c(report, path, text):
    code = c_code(text)
    lines = text.count("\n")
    if lines > LINES_MAX:
        report.add(path, lines, f"{lines} lines; at most {LINES_MAX}")
    if SPDX not in text.split("\n", 1)[0]:
        report.add(path, 1, f"the first line must say {SPDX}")
    check_indent(report, path, code)
    check_calls(report, path, code, UNSAFE, "never; use snprintf or memcpy with a bound")
    if path.startswith("src/") and not path.startswith(LOUD_ALLOWED):
        check_calls(report, path, code, LOUD, "the library neither prints nor exits; return an error (err_set) or check()")
    if path.startswith("src/") and not path.startswith(ALLOCATE_ALLOWED):
        check_calls(report, path, code, ALLOCATE, "allocate and free with mem_* (base/mem.h)")


def check_unit(report, path, text):
    """Every test of tests/unit/test_FILE.c is named test_FILE__WHAT."""
    prefix = path.rsplit("/", 1)[1][:-2] + "__"
    code = c_code(text)
    listed = {match.group(1): match.start() for match in UNIT_TEST.finditer(code)}
    for name, at in listed.items():
        if not name.startswith(prefix):
            report.add(path, line_of(code, at), f"test {name} must be named {prefix}WHAT")
    for match in TEST_FUNCTION.finditer(code):
        name = match.group(1)
        if name.startswith("test_") and name not in listed and code.count(name) < 2:
            report.add(path, line_of(code, match.start()), f"test {name} is never run")


def main():
    report = Report()
    for path in tree_files():
        if not (path.endswith(TEXT) or path in ("Makefile", ".ci/run")):
            continue
        text = read(path)
        if text is None:
            continue
        for match in HOME.finditer(text):
            report.add(path, line_of(text, match.start()), f"a path of somebody's machine: {match.group(0)}")
        if path.startswith(("src/", "include/", "tests/")):
            check_lines(report, path, text)
            if path.endswith((".c", ".h", ".cc")):
                check_c(report, path, text)
        if path.startswith("tests/unit/test_") and path.endswith(".c"):
            check_unit(report, path, text)
    report.finish()


main()
