# SPDX-License-Identifier: Apache-2.0
"""Names of numbers, and types that many modules share."""
from enum import IntEnum
from typing import Any, List, Mapping, Sequence, Tuple, Union

from cairnkv._cairn import ffi
from cairnkv._errors import Invalid


class Tier(IntEnum):
    NONE = 0
    MEMORY = 1
    FLASH = 2
    OBJECT = 3
    PEER = 4


class Durability(IntEnum):
    """How safe a put is when the call returns."""

    DEFAULT = 0
    NONE = 1
    FLASH = 2
    OBJECT = 3


class Rule(IntEnum):
    """Which blocks of a group a prefix needs."""

    ALL = 0
    TRAILING = 1
    SNAPSHOT = 2


class Hint(IntEnum):
    CLOSE = 1
    PAUSE = 2
    RESUME = 3


class Reason(IntEnum):
    """Why a part is not there."""

    NONE = 0
    PRESENT = 1
    EVICTED = 2
    DROPPED = 3
    DAMAGED = 4
    DEVICE = 5
    ORPHAN = 6
    DOUBTFUL = 7
    EXPIRED = 8


class EventKind(IntEnum):
    OTHER = 0  # of another tenant, by a cairnd
    STORED = 1
    REMOVED = 2


Buffer = Any  # an object with the buffer protocol
Keys = Union[Sequence[bytes], bytes]  # keys of 32 bytes, or all of them in one bytes object
Chains = Union[Keys, Mapping[int, Keys]]  # keys of group 0, or keys by group

KEY_BYTES = 32


def pack_keys(keys: Keys) -> bytes:
    """Keys, one behind the other."""
    if isinstance(keys, (bytes, bytearray, memoryview)):
        packed = bytes(keys)
    else:
        packed = b"".join(keys)
        if any(len(key) != KEY_BYTES for key in keys):
            raise Invalid("a key has 32 bytes")
    if len(packed) % KEY_BYTES:
        raise Invalid("keys have 32 bytes each")
    return packed


def split_keys(packed: bytes) -> List[bytes]:
    return [packed[i:i + KEY_BYTES] for i in range(0, len(packed), KEY_BYTES)]


def one_key(key: bytes) -> bytes:
    if not isinstance(key, (bytes, bytearray, memoryview)) or len(key) != KEY_BYTES:
        raise Invalid("a key is 32 bytes")
    return bytes(key)


def pack_chains(chains: Chains) -> Tuple[Any, int, List[Any]]:
    """struct cairn_chain[], their number, and what must live as long."""
    by_group = chains if isinstance(chains, Mapping) else {0: chains}
    array = ffi.new("struct cairn_chain[]", max(1, len(by_group)))
    alive: List[Any] = []
    for entry, (group, keys) in zip(array, by_group.items()):
        packed = ffi.from_buffer("cairn_key[]", pack_keys(keys))
        entry.group = group
        entry.keys = packed
        entry.nkeys = len(packed)
        alive.append(packed)
    return array, len(by_group), alive


def c_text(text: Any, what: str) -> Any:
    """A C string; NULL for None."""
    if text is None:
        return ffi.NULL
    if isinstance(text, str):
        text = text.encode("utf-8", "surrogateescape")
    if not isinstance(text, bytes):
        raise TypeError(f"{what} must be a str, not {type(text).__name__}")
    if b"\0" in text:
        raise Invalid(f"{what} has a 0 byte")
    return ffi.new("char[]", text)
