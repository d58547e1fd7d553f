# SPDX-License-Identifier: Apache-2.0
"""What the store tells of itself: the structs of cairn.h as dataclasses, with the same names of fields."""
import builtins
from dataclasses import dataclass, fields
from typing import Any, Dict, List, Tuple, Type, TypeVar

from cairnkv._cairn import ffi
from cairnkv._errors import text_of

T = TypeVar("T")


@dataclass(frozen=True)
class TierStat:
    capacity_bytes: int
    used_bytes: int
    parts: int
    hits: int
    hit_bytes: int
    written_parts: int
    written_bytes: int
    evicted_parts: int
    evicted_bytes: int
    damaged_parts: int
    errors: int


@dataclass(frozen=True)
class DeviceStat:
    path: str
    state: int  # 0 healthy, 1 writes refused, 2 gone
    segments: int
    free_segments: int
    open_segments: int
    segment_bytes: int
    budget_bytes: int
    used_bytes: int
    live_bytes: int
    written_bytes: int
    moved_bytes: int
    flushes: int
    failed_flushes: int
    groups: int
    read_gb_s: float
    write_gb_s: float
    read_s: float
    io_engine: str
    direct: int
    reads_shut: int
    reads_shut_times: int
    reads_refused: int


@dataclass(frozen=True)
class PeerStat:
    place: str
    state: int  # 0 well, 1 stepped over, 2 tried again
    answers: int
    late: int
    failures: int
    hits: int
    hit_bytes: int
    damaged_parts: int
    answer_s: float
    read_gb_s: float


@dataclass(frozen=True)
class Stat:
    """Figures of the whole store. Tuples of tiers are indexed by Tier, misses_why by Reason."""

    tier: Tuple[TierStat, ...]
    misses: int
    put_exists: int
    put_conflicts: int
    dropped_parts: int
    doubtful_parts: int
    lost_sessions: int
    orphan_parts: int
    copies_extra_bytes: int
    leased_bytes: int
    sessions: int
    matches: int
    catalog_bytes: int
    catalog_entries: int
    catalog_capacity: int
    reopen_read_bytes: int
    reopen_payload_bytes: int
    reopen_s: float
    device: Tuple[DeviceStat, ...]
    flash_refused_parts: int
    flash_refused_bytes: int
    misses_why: Tuple[int, ...]
    lookups: int
    lookups_whole: int
    lookups_part: int
    lookup_tokens: int
    found_tokens: int
    found_bytes: Tuple[int, ...]
    memory_age_s: float
    alarms: int
    alarm_minutes: int
    peer: Tuple[PeerStat, ...]
    in_flight_bytes: int
    in_flight_limit_bytes: int
    in_flight_refused: int


@dataclass(frozen=True)
class SpaceInfo:
    id: bytes
    text: str
    parts: int
    bytes: int
    tier_parts: Tuple[int, ...]
    tier_bytes: Tuple[int, ...]
    hits: Tuple[int, ...]
    hit_bytes: Tuple[int, ...]
    misses: int
    written_parts: int
    written_bytes: int
    evicted_parts: int
    evicted_bytes: int


@dataclass(frozen=True)
class PartInfo:
    space_id: bytes
    key_prefix: bytes
    part: int
    tail: int
    in_memory: int
    in_flash: int
    device: int
    bytes: int
    birth: int


@dataclass(frozen=True)
class TenantStat:
    tenant: str
    memory_bytes: int
    flash_bytes: int
    flash_live_bytes: int
    flash_parts: int
    leased_bytes: int
    memory_quota_bytes: int
    memory_reserved_bytes: int
    flash_quota_bytes: int
    flash_reserved_bytes: int
    share: int
    hits: Tuple[int, ...]
    hit_bytes: Tuple[int, ...]
    misses: int
    written_parts: int
    written_bytes: int
    evicted_parts: Tuple[int, ...]
    evicted_bytes: Tuple[int, ...]
    quota_refused: int


@dataclass(frozen=True)
class ClientInfo:
    program: str
    address: str
    number: int
    since_s: int
    pid: int
    uid: int
    connections: int
    leases: int
    matches: int
    spaces: int
    requests: int
    failed: int
    read_bytes: int
    written_bytes: int
    in_flight_bytes: int
    in_flight_refused: int


@dataclass(frozen=True)
class SessionInfo:
    tenant: str
    owner: str
    name: str
    epoch: int
    tokens: int
    bytes: int
    saved_at_s: int
    expires_at_s: int  # 0: no time to live
    pinned: int
    nchains: int
    ntails: int
    space_id: builtins.bytes


@dataclass(frozen=True)
class TailInfo:
    key: bytes
    group: int
    part: int
    bytes: int


@dataclass(frozen=True)
class Explanation:
    reason: int  # Reason
    tier: int  # where it is, or was last
    uses: int
    when_s: int  # wall clock; 0: unknown
    bytes: int  # 0: unknown


@dataclass(frozen=True)
class Event:
    """`engine_hash`: the engine's own hash of the block, b"" where it is not known."""

    sequence: int
    life: int
    kind: int  # EventKind
    tier: int
    reason: int
    part: int
    space_id: bytes
    key_prefix: bytes
    birth: int
    engine_hash: bytes


@dataclass(frozen=True)
class Present:
    space_id: bytes
    key_prefix: bytes
    part: int
    tiers: int  # mask: 1 << Tier
    bytes: int
    birth: int
    engine_hash: builtins.bytes


@dataclass(frozen=True)
class Snapshot:
    """What is there: `present` with the events after `sequence` of that `life` applied over it."""

    sequence: int
    life: int
    present: List[Present]


@dataclass(frozen=True)
class TokenInfo:
    """A token for a cairnd, without its secret."""

    id: str
    tenant: str
    flags: int
    made_s: int
    expires_s: int


# Arrays of structs: the class of an element, and the field that counts them (None: all are meant).
_NESTED: Dict[str, Tuple[Type[Any], Any]] = {
    "struct cairn_tier_stat": (TierStat, None),
    "struct cairn_device_stat": (DeviceStat, "ndevices"),
    "struct cairn_peer_stat": (PeerStat, "npeers"),
}
# Fields of bytes that have a length of their own.
_LENGTHS = {"engine_hash": "hash_bytes"}


def _value(owner: Any, name: str) -> Any:
    value = getattr(owner, name)
    if isinstance(value, (int, float)):
        return value
    ctype = ffi.typeof(value)
    if ctype.kind == "pointer":
        return text_of(value)
    if ctype.kind == "struct":  # a digest or a key
        return bytes(ffi.buffer(ffi.addressof(value)))
    element = ctype.item
    if element.cname == "char":
        return bytes(ffi.string(value)).decode("utf-8", "surrogateescape")
    if element.cname == "uint8_t":
        length = getattr(owner, _LENGTHS[name]) if name in _LENGTHS else ctype.length
        return bytes(ffi.buffer(value))[:length]
    if element.kind == "struct":
        cls, counter = _NESTED[element.cname]
        return tuple(from_c(cls, one) for one in value[0:getattr(owner, counter) if counter else ctype.length])
    return tuple(value)


def from_c(cls: Type[T], struct: Any) -> T:
    """A dataclass of the fields of a struct."""
    return cls(*[_value(struct, one.name) for one in fields(cls)])  # type: ignore[arg-type]
