# SPDX-License-Identifier: Apache-2.0
"""What the house-rule scripts (check-*.py) share: the tree's files, C text without comments, and reporting."""
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SKIPPED_DIRS = {".git", "build", "__pycache__"}


def tree_files():
    """Paths, relative to the root, of all files that git tracks or would track; all files where git does not answer."""
    try:
        listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard", "-z"],
                                capture_output=True, check=True).stdout.decode()
        paths = [path for path in listed.split("\0") if path]
    except (OSError, subprocess.CalledProcessError):
        paths = []
        for folder, dirs, names in os.walk(ROOT):
            dirs[:] = [d for d in dirs if d not in SKIPPED_DIRS]
            paths += [os.path.relpath(os.path.join(folder, name), ROOT) for name in names]
    return sorted(path for path in set(paths) if os.path.isfile(os.path.join(ROOT, path)))


def read(path):
    """The text of a file of the tree; None where it is not text."""
    with open(os.path.join(ROOT, path), "rb") as file:
        data = file.read()
    if b"\0" in data:
        return None
    return data.decode("utf-8", "replace")


_NOT_CODE = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S)


def c_code(text):
    """C text with comments and the insides of literals blanked, lines kept."""
    def blank(match):
        found = match.group(0)
        if found[0] == "/":
            return re.sub(r"[^\n]", " ", found)
        return found[0] + " " * (len(found) - 2) + found[-1]
    return _NOT_CODE.sub(blank, text)


class Report:
    def __init__(self):
        self.count = 0

    def add(self, path, line, what):
        print(f"{path}:{line}: {what}")
        self.count += 1

    def finish(self):
        sys.stdout.flush()
        sys.exit(1 if self.count else 0)
