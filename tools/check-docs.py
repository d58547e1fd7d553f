#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""House rule: every link of a Markdown file to a file of the tree leads somewhere."""
import os
import re
import urllib.parse

from rules import ROOT, Report, read, tree_files

LINK = re.compile(r"\[[^\]\n]*\]\(\s*<?([^)\s>]+)>?[^)\n]*\)|^\[[^\]\n]+\]:\s*(\S+)", re.M)
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|#")
FENCE = re.compile(r"^```.*?^```", re.M | re.S)


def main():
    report = Report()
    for path in tree_files():
        if not path.endswith(".md"):
            continue
        text = FENCE.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), read(path) or "")
        for match in LINK.finditer(text):
            target = match.group(1) or match.group(2)
            if ELSEWHERE.match(target):
                continue
            name = urllib.parse.unquote(target.split("#")[0])
            base = "" if name.startswith("/") else os.path.dirname(path)
            if not os.path.exists(os.path.join(ROOT, base, name.lstrip("/"))):
                report.add(path, text.count("\n", 0, match.start()) + 1, f"the link leads nowhere: {target}")
    report.finish()


main()
