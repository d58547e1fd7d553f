# SPDX-License-Identifier: Apache-2.0
"""The public header as cffi takes it. Nothing of it is copied by hand, so the module can never differ from it.

What is left out: comments, the preprocessor's lines, and inline functions. Numeric macros become constants whose
values the C compiler fills in.
"""
import re
from typing import Dict, List

_COMMENT = re.compile(r"/\*.*?\*/", re.S)
_NUMBER = re.compile(r"^#define (\w+) +\(?(\d+)(?:u|ul|ull)?(?: << (\d+))?\)?\s*$")
_INLINE = re.compile(r"^static inline [^;{]*\{.*?^\}\n", re.S | re.M)


def macros(text: str) -> Dict[str, int]:
    """The numeric macros of a header, and their values."""
    found = {}
    for line in _COMMENT.sub("", text).split("\n"):
        match = _NUMBER.match(line)
        if match:
            found[match.group(1)] = int(match.group(2)) << int(match.group(3) or 0)
    return found


def functions(text: str) -> List[str]:
    """The names of all functions that a header exports."""
    return re.findall(r"^CAIRN_API\b[^;(]*?\b(\w+)\(", _COMMENT.sub("", text), re.M)


def cdef(text: str) -> str:
    """The declarations of cairn.h for cffi's cdef()."""
    numbers = macros(text)
    text = _INLINE.sub("", _COMMENT.sub("", text))
    lines = []
    for line in text.split("\n"):
        if line.startswith("#"):
            match = re.match(r"#define (\w+)", line)
            if match and match.group(1) in numbers:
                lines.append(f"#define {match.group(1)} ...")
        else:
            lines.append(line)
    text = "\n".join(lines).replace('extern "C" {\n', "")
    text = re.sub(r"\bCAIRN_API\b ?", "", text)
    # The closing brace of extern "C" is the last of the file and stands alone.
    text = re.sub(r"\n\}\s*$", "\n", text)
    return re.sub(r"\[(CAIRN_\w+)\]", lambda m: f"[{numbers.get(m.group(1), m.group(1))}]", text)
