# SPDX-License-Identifier: Apache-2.0
"""Statuses, and an exception for each that is an error."""
from enum import IntEnum
from typing import Any, Dict, Optional, Type

from cairnkv._cairn import ffi, lib


class Status(IntEnum):
    """What became of a call or of an item. Above 0: results; below 0: errors. See CAIRN_... in cairn.h."""

    OK = 0
    MISS = 1
    DAMAGED = 2
    EXISTED = 3
    INVAL = -22
    NOMEM = -12
    BUSY = -16
    LATE = -62
    CANCELED = -125
    FULL = -28
    IO = -5
    SIZE = -90
    CONFLICT = -17
    NOENT = -2
    ACCESS = -13
    RDONLY = -30
    OWNED = -98
    NOTSTORE = -124
    VERSION = -93
    CORRUPT = -117
    QUOTA = -122
    UNKNOWN = -61

    @property
    def meaning(self) -> str:
        """A few words."""
        return text_of(lib.cairn_status_text(int(self)))


class CairnError(Exception):
    """A call failed. `status` says how, `text` what, where, and what to do about it."""

    status: Status = Status.IO

    def __init__(self, text: str, status: Optional[Status] = None) -> None:
        super().__init__(text)
        self.text = text
        if status is not None:
            self.status = status


class Invalid(CairnError, ValueError):
    """An argument is wrong."""

    status = Status.INVAL


class NoMemory(CairnError):
    """Out of memory; nothing was changed."""

    status = Status.NOMEM


class Busy(CairnError):
    """A limit (queue, leases, matches, memory in use) is reached; try again later."""

    status = Status.BUSY


class Late(CairnError):
    """The deadline passed."""

    status = Status.LATE


class Canceled(CairnError):
    """It was cancelled before the work."""

    status = Status.CANCELED


class Full(CairnError):
    """No room, and nothing may be evicted."""

    status = Status.FULL


class IoError(CairnError):
    """A device failed, or the cairnd went away."""

    status = Status.IO


class SizeError(CairnError):
    """Bytes do not fit what the space declares, the buffer, or the limits of a part."""

    status = Status.SIZE


class Conflict(CairnError):
    """The key exists with another length; the first is kept."""

    status = Status.CONFLICT


class NotFound(CairnError):
    """No such path, session or name."""

    status = Status.NOENT


class AccessDenied(CairnError):
    """The operating system or the cairnd forbids it."""

    status = Status.ACCESS


class ReadOnly(CairnError):
    """The store is open read-only or its medium is."""

    status = Status.RDONLY


class Owned(CairnError):
    """Another process owns the directory; the text names it."""

    status = Status.OWNED


class NotAStore(CairnError):
    """Not a cairn directory, and not empty."""

    status = Status.NOTSTORE


class VersionError(CairnError):
    """Written by a newer cairn."""

    status = Status.VERSION


class Corrupt(CairnError):
    """The store's identity is damaged; run `cairn fsck`. Also a session that is damaged (status DAMAGED)."""

    status = Status.CORRUPT


class Quota(CairnError):
    """The tenant's quota is used up."""

    status = Status.QUOTA


class UnknownWeights(CairnError):
    """The weights digest of the space is unknown: everything misses."""

    status = Status.UNKNOWN


class Closed(CairnError, ValueError):
    """The store, match, lease or queue was closed or released before."""

    status = Status.INVAL


class Forked(CairnError):
    """It was opened before a fork: a child process must open its own."""

    status = Status.INVAL


_CLASSES: Dict[int, Type[CairnError]] = {
    int(cls.status): cls
    for cls in (Invalid, NoMemory, Busy, Late, Canceled, Full, IoError, SizeError, Conflict, NotFound, AccessDenied,
                ReadOnly, Owned, NotAStore, VersionError, Corrupt, Quota, UnknownWeights)
}


def text_of(pointer: Any) -> str:
    """A C string; "" for NULL."""
    if pointer == ffi.NULL:
        return ""
    return bytes(ffi.string(pointer)).decode("utf-8", "surrogateescape")


def status_of(value: int) -> Status:
    """A status by its number; one that this version does not know is IO."""
    try:
        return Status(value)
    except ValueError:
        return Status.IO


def error_of(value: int, text: Optional[str] = None) -> CairnError:
    """The exception for a failed call of this thread."""
    if text is None:
        text = text_of(lib.cairn_error_text()) or text_of(lib.cairn_status_text(value))
    return _CLASSES.get(value, CairnError)(text, status_of(value))


def check(value: int) -> int:
    """Raises where a call failed; else its result."""
    if value < 0:
        raise error_of(value)
    return value
