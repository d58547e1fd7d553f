# SPDX-License-Identifier: Apache-2.0
"""The programs `cairn` and `cairnd` that the package carries."""
import os
import sys

_BIN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin")


def program(name: str) -> str:
    """The path of `cairn` or `cairnd`."""
    if name not in ("cairn", "cairnd"):
        raise ValueError(f"there is no program {name!r}: cairn or cairnd")
    return os.path.join(_BIN, name)


def _run(name: str) -> None:
    path = program(name)
    try:
        os.execv(path, [path, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"{name}: {path}: {error.strerror}; install cairnkv again")


def run_cairn() -> None:
    _run("cairn")


def run_cairnd() -> None:
    _run("cairnd")
