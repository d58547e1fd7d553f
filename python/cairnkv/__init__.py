# SPDX-License-Identifier: Apache-2.0
"""cairn for Python: keeps the KV cache of LLM inference after it has left GPU memory, and brings it back.

    with cairnkv.Store("dir:/var/lib/cairn", create=True) as store:
        space = store.space(model="m", weights=cairnkv.weights_digest(files), kv_dtype="bf16", block_tokens=16)
        keys = space.derive().tokens(tokens)
        store.put(space, [cairnkv.Item(key, block) for key, block in zip(keys, blocks)])
        with store.match(space, keys) as match:
            store.get(space, [cairnkv.Item(key, room) for key, room in zip(keys, rooms)])

docs/PYTHON.md tells the rest; include/cairn/cairn.h is the manual of what the calls do.

Threads: a Store, a Space and a Queue may be used by any threads at once; a Derive, Match, Lease or Session by one at a
time. Every call that may wait or copies bytes lets go of the interpreter's lock.
Fork: what was opened before a fork raises Forked in the child, which has to open its own.
"""
from cairnkv._cairn import ffi as _ffi
from cairnkv._cairn import lib as _lib
from cairnkv._desc import Derive, Desc, Group, Part, explain_desc
from cairnkv._errors import (
    AccessDenied,
    Busy,
    CairnError,
    Canceled,
    Closed,
    Conflict,
    Corrupt,
    Forked,
    Full,
    Invalid,
    IoError,
    Late,
    NoMemory,
    NotAStore,
    NotFound,
    Owned,
    Quota,
    ReadOnly,
    SizeError,
    Status,
    UnknownWeights,
    VersionError,
)
from cairnkv._info import (
    ClientInfo,
    DeviceStat,
    Event,
    Explanation,
    PartInfo,
    PeerStat,
    Present,
    SessionInfo,
    Snapshot,
    SpaceInfo,
    Stat,
    TailInfo,
    TenantStat,
    TierStat,
    TokenInfo,
)
from cairnkv._items import Batch, Item, Planes
from cairnkv._programs import program
from cairnkv._queue import AsyncQueue, Pending, Queue
from cairnkv._store import Lease, Match, Region, Session, Space, Store, TenantLimits
from cairnkv._tokens import token_list, token_new, token_revoke
from cairnkv._types import Durability, EventKind, Hint, Reason, Rule, Tier
from cairnkv._weights import weights_digest


def version() -> str:
    """The library's version."""
    return str(_ffi.string(_lib.cairn_version()).decode())


def check(data: object) -> int:
    """The checksum of every field named check: XXH3-64, seed 0."""
    with _ffi.from_buffer(data) as taken:
        return int(_lib.cairn_check(taken, len(taken)))


__version__ = version()

__all__ = [
    "AccessDenied", "AsyncQueue", "Batch", "Busy", "CairnError", "Canceled", "ClientInfo", "Closed", "Conflict",
    "Corrupt", "Derive", "Desc", "DeviceStat", "Durability", "Event", "EventKind", "Explanation", "Forked", "Full",
    "Group", "Hint", "Invalid", "IoError", "Item", "Late", "Lease", "Match", "NoMemory", "NotAStore", "NotFound",
    "Owned", "Part", "PartInfo", "PeerStat", "Pending", "Planes", "Present", "Queue", "Quota", "ReadOnly", "Reason",
    "Region", "Rule", "Session", "SessionInfo", "SizeError", "Snapshot", "Space", "SpaceInfo", "Stat", "Status",
    "Store", "TailInfo", "TenantLimits", "TenantStat", "Tier", "TierStat", "TokenInfo", "UnknownWeights",
    "VersionError", "check", "explain_desc", "program", "token_list", "token_new", "token_revoke", "version",
    "weights_digest",
]
