# SPDX-License-Identifier: Apache-2.0
"""The weights digest, and the user's cache of digests, because reading 40 GB takes a minute.

The cache is the one of the llama.cpp plugin: lines "HEX KEY", at most 64, the newest last. KEY names each file by its
last name component, device, inode, size, time of change and time of status change. The second time cannot be set by a
user, so a file that was written in place is never taken for what it was; one that changed in the last two seconds is
not remembered. A cache that somebody else could have written is not read. Losing it costs time only.
"""
import os
import stat
import time
from typing import Any, Callable, List, Optional, Sequence, Union

from cairnkv._cairn import ffi, lib
from cairnkv._errors import check

_LINES_MAX = 64
_KEY_MAX = 16384
_SETTLE_S = 2

Path = Union[str, "os.PathLike[str]"]


def _key(files: Sequence[str]) -> Optional[str]:
    """None: not to be remembered. What is wrong with a file, the library says better."""
    try:
        return _key_of(files)
    except OSError:
        return None


def _key_of(files: Sequence[str]) -> Optional[str]:
    now = time.time()
    words = []
    # The digest does not depend on the order of the files; the plugin gives its splits in order of their names.
    for path in sorted(files, key=lambda path: os.fsencode(os.path.basename(path))):
        at, name = os.stat(path), os.path.basename(path)
        if at.st_ctime > now - _SETTLE_S or not stat.S_ISREG(at.st_mode) or "\n" in name:
            return None
        times = [f"{ns // 10**9}.{ns % 10**9:09d}" for ns in (at.st_mtime_ns, at.st_ctime_ns)]
        words.append(f"{at.st_dev}:{at.st_ino}:{at.st_size}:{times[0]}:{times[1]}:{name}")
    key = "/".join(words)
    return key if len(os.fsencode(key)) < _KEY_MAX else None


def _cache_path() -> Optional[str]:
    for folder, below in ((os.environ.get("CAIRN_CACHE"), ""), (os.environ.get("XDG_CACHE_HOME"), "cairn"),
                          (os.environ.get("HOME"), ".cache/cairn")):
        if folder and folder.startswith("/"):
            folder = os.path.join(folder, below)
            try:
                os.makedirs(folder, mode=0o700, exist_ok=True)
            except OSError:
                return None
            return os.path.join(folder, "weights-digests")
    return None


def _cache_lines(path: str) -> List[str]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return []
    with open(fd, encoding="utf-8", errors="surrogateescape", newline="\n") as file:
        at = os.fstat(fd)
        if not stat.S_ISREG(at.st_mode) or at.st_uid != os.geteuid() or at.st_mode & 0o022:
            return []
        return [line[:-1] for line in file if line.endswith("\n")]


def _cache_find(path: str, key: str) -> Optional[bytes]:
    for line in _cache_lines(path):
        digest, _, rest = line.partition(" ")
        if rest == key and len(digest) == 64 and digest == digest.lower():
            try:
                return bytes.fromhex(digest)
            except ValueError:
                continue
    return None


def _cache_add(path: str, key: str, digest: bytes) -> None:
    """A new file is renamed over the old one. Of two at once, one loses its line: it costs time only."""
    lines = _cache_lines(path)[-(_LINES_MAX - 1):] + [f"{digest.hex()} {key}"]
    beside = f"{path}.{os.getpid()}"
    try:
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with open(fd, "w", encoding="utf-8", errors="surrogateescape", newline="\n") as file:
                file.write("".join(line + "\n" for line in lines))
            os.rename(beside, path)
        except OSError:
            os.unlink(beside)
    except OSError:
        pass


class _Progress:
    def __init__(self, call: Callable[[int, int], object]) -> None:
        self.call = call
        self.error: Optional[BaseException] = None


@ffi.def_extern(name="cairnkv_progress", error=1)
def _on_progress(arg: Any, done: int, whole: int) -> int:
    progress: _Progress = ffi.from_handle(arg)
    try:
        return 1 if progress.call(done, whole) else 0
    except BaseException as error:  # raised again by the call that this is part of
        progress.error = error
        return 1


def weights_digest(files: Union[Path, Sequence[Path]], progress: Optional[Callable[[int, int], object]] = None,
                   cache: bool = True) -> bytes:
    """The weights digest of docs/KEY.md over all files that hold tensors. The bytes are read once; what was read
    before and has not changed is remembered in the user's cache directory. `progress` is called with bytes done and in
    all; where it returns something true, the work stops (Canceled)."""
    listed = [os.fspath(one) for one in ([files] if isinstance(files, (str, os.PathLike)) else files)]
    names = [ffi.new("char[]", os.fsencode(one)) for one in listed]
    path = _cache_path() if cache else None
    before = None
    if path and listed:
        before = _key(listed)
        found = _cache_find(path, before) if before else None
        if found:
            return found
    state = _Progress(progress) if progress else None
    handle = ffi.new_handle(state) if state else ffi.NULL
    digest = ffi.new("cairn_digest *")
    status = lib.cairn_weights_digest(ffi.new("char *[]", names), len(names),
                                      lib.cairnkv_progress if state else ffi.NULL, handle, digest)
    if state and state.error:
        raise state.error
    check(status)
    out = bytes(ffi.buffer(digest))
    if path and before and _key(listed) == before:
        _cache_add(path, before, out)
    return out
