# SPDX-License-Identifier: Apache-2.0
"""What is put and got: single items, and batches of many equal blocks.

The C arrays are made for one call. Buffers are exported (so that nobody resizes or frees them) from then until the
call, or its completion, is over.
"""
import threading
from typing import TYPE_CHECKING, Any, List, Optional, Sequence, Tuple, Union

from cairnkv._cairn import ffi, lib
from cairnkv._errors import Invalid, Status, status_of
from cairnkv._handle import Handle
from cairnkv._types import KEY_BYTES, Buffer, Keys, Tier, one_key, pack_keys

if TYPE_CHECKING:
    from cairnkv._store import Region

# A buffer, (address, length), or (region, offset, length).
Source = Union[Buffer, Tuple[int, int], Tuple["Region", int, int]]

TAIL = 1 << 0
UNCHECKED = 1 << 1
_claiming = threading.Lock()


def _is_source(bufs: Any) -> bool:
    """Whether it is one source, and not a sequence of them."""
    if isinstance(bufs, tuple):
        return len(bufs) in (2, 3) and isinstance(bufs[-1], int)
    return not isinstance(bufs, list)


class Item:
    """One part of one block. Its results are set when the call, or its completion, is over."""

    __slots__ = ("key", "bufs", "group", "part", "parent", "engine_hash", "tail", "unchecked", "status", "tier",
                 "bytes", "check", "busy")

    def __init__(self, key: bytes, bufs: Union[Source, Sequence[Source]] = (), *, group: int = 0, part: int = 0,
                 parent: Optional[bytes] = None, engine_hash: Optional[bytes] = None, tail: bool = False,
                 unchecked: bool = False) -> None:
        self.key = one_key(key)
        self.bufs: Sequence[Source] = (bufs,) if _is_source(bufs) else bufs
        self.group = group
        self.part = part
        self.parent = None if parent is None else one_key(parent)
        self.engine_hash = engine_hash
        self.tail = tail
        self.unchecked = unchecked
        self.status: Status = Status.MISS
        self.tier: Tier = Tier.NONE
        self.bytes = 0
        self.check = 0
        self.busy = False  # in flight

    @property
    def ok(self) -> bool:
        return self.status in (Status.OK, Status.EXISTED)

    def __repr__(self) -> str:
        return f"<cairnkv.Item {self.key.hex()[:16]} part {self.part}: {self.status.name.lower()}>"


class Planes:
    """Where equal blocks lie: block i at address + i * stride in each plane, as in the KV tensors of an engine's
    layers. `owner` is kept alive with it."""

    __slots__ = ("array", "count", "owner")

    def __init__(self, planes: Sequence[Tuple[int, int, int]], owner: object = None) -> None:
        self.array = ffi.new("struct cairnkv_plane[]", max(1, len(planes)))
        for to, (address, stride, length) in zip(self.array, planes):
            if not address:
                raise Invalid("the address of a plane is 0")
            to.address, to.stride, to.length = address, stride, length
        self.count = len(planes)
        self.owner = owner


class Batch:
    """Many parts whose bytes lie in planes; made by a loop in C. Taken wherever items are."""

    __slots__ = ("array", "count", "alive", "busy")

    def __init__(self, keys: Keys, planes: Planes, indices: Sequence[int], *, group: int = 0, part: int = 0,
                 chain: bool = False, parents: Optional[Keys] = None, engine_hashes: Optional[Sequence[bytes]] = None,
                 unchecked: bool = False) -> None:
        packed = ffi.from_buffer("cairn_key[]", pack_keys(keys))
        count = len(packed)
        if len(indices) != count:
            raise Invalid(f"{count} keys and {len(indices)} indices")
        if chain and parents is not None:
            raise Invalid("either chain or parents")
        before, first = ffi.NULL, 0
        if chain:
            before, first = packed - 1, 1
        elif parents is not None:
            before = ffi.from_buffer("cairn_key[]", pack_keys(parents))
            if len(before) != count:
                raise Invalid(f"{count} keys and {len(before)} parents")
        if not (0 <= group < 1 << 16 and 0 <= part < 1 << 16):
            raise Invalid("group and part are below 65,536")
        numbers = ffi.new("uint64_t[]", list(indices))
        bufs = ffi.new("struct cairn_buf[]", max(1, count * planes.count))
        self.array = ffi.new("struct cairn_item[]", max(1, count))
        lib.cairnkv_fill(self.array, bufs, packed, before, first, numbers, count, planes.array, planes.count, group,
                         part, UNCHECKED if unchecked else 0)
        self.alive: List[Any] = [packed, before, bufs, planes]
        if engine_hashes is not None:
            self._take_hashes(engine_hashes)
        self.count = count
        self.busy = False

    def _take_hashes(self, engine_hashes: Sequence[bytes]) -> None:
        length = len(engine_hashes[0]) if engine_hashes else 0
        if len(engine_hashes) != len(self.array) or any(len(one) != length for one in engine_hashes) or length > 32:
            raise Invalid("engine hashes: one for each key, all of one length, at most 32 bytes")
        hashes = ffi.from_buffer("uint8_t[]", b"".join(engine_hashes))
        lib.cairnkv_fill_hashes(self.array, len(engine_hashes), hashes, length)
        self.alive.append(hashes)

    def __len__(self) -> int:
        return self.count

    @property
    def statuses(self) -> List[int]:
        out = ffi.new("int32_t[]", max(1, self.count))
        lib.cairnkv_statuses(self.array, self.count, out)
        return list(out)[:self.count]

    @property
    def ok(self) -> int:
        """How many are OK or EXISTED."""
        return sum(status in (0, 3) for status in self.statuses)

    def _at(self, index: int) -> Any:
        if not 0 <= index < self.count:
            raise IndexError("there is no such item in the batch")
        return self.array[index]

    def status(self, index: int) -> Status:
        return status_of(self._at(index).status)

    def tier(self, index: int) -> Tier:
        return Tier(self._at(index).ret_tier)

    def bytes(self, index: int) -> int:
        return int(self._at(index).ret_bytes)

    def check(self, index: int) -> int:
        return int(self._at(index).ret_check)


Items = Union[Batch, Sequence[Item]]


class Packed:
    """Items as C takes them, for one call. done() writes their results and lets go of the buffers."""

    __slots__ = ("items", "array", "count", "alive", "handle")

    def __init__(self, items: Items, writable: bool, handle: Handle) -> None:
        self.alive: List[Any] = []
        self.handle = handle
        self.items: Any = items
        if isinstance(items, Batch):
            self._claim([items])
            self.array, self.count = items.array, items.count
            return
        self.items = list(items)
        for item in self.items:
            if not isinstance(item, Item):
                raise TypeError(f"an item is a cairnkv.Item, not {type(item).__name__}")
        self._claim(self.items)
        try:
            self.count = len(self.items)
            self.array = ffi.new("struct cairn_item[]", max(1, self.count))
            for to, item in zip(self.array, self.items):
                self._fill(to, item, writable)
        except BaseException:
            self._let_go()
            raise

    def _claim(self, claimed: Sequence[Any]) -> None:
        """No item is in two calls at a time: they would write the same results."""
        with _claiming:
            for index, item in enumerate(claimed):
                if item.busy:
                    for one in claimed[:index]:
                        one.busy = False
                    raise Invalid("an item is in flight already, or twice in the batch")
                item.busy = True

    def _let_go(self) -> None:
        for item in [self.items] if isinstance(self.items, Batch) else self.items:
            item.busy = False
        self.alive.clear()

    def _fill(self, to: Any, item: Item, writable: bool) -> None:
        ffi.memmove(to.key.bytes, item.key, KEY_BYTES)
        if item.parent is not None:
            parent = ffi.from_buffer("cairn_key *", item.parent)
            self.alive.append(parent)
            to.parent = parent
        bufs = ffi.new("struct cairn_buf[]", max(1, len(item.bufs)))
        self.alive.append(bufs)
        for buf, source in zip(bufs, item.bufs):
            self._source(buf, source, writable)
        to.bufs, to.nbufs = bufs, len(item.bufs)
        to.group, to.part = item.group, item.part
        to.flags = (TAIL if item.tail else 0) | (UNCHECKED if item.unchecked else 0)
        if item.engine_hash is not None:
            data = ffi.from_buffer("uint8_t[]", bytes(item.engine_hash))
            self.alive.append(data)
            to.engine_hash, to.engine_hash_bytes = data, len(data)

    def _source(self, buf: Any, source: Source, writable: bool) -> None:
        if not isinstance(source, tuple):
            data = ffi.from_buffer("char[]", source, require_writable=writable)
            self.alive.append(data)
            buf.offset = int(ffi.cast("uintptr_t", data))
            buf.length = len(data)
        elif len(source) == 2:
            buf.offset, buf.length = source
            if buf.offset == 0 and buf.length:
                raise Invalid("the address of a buffer is 0")
        else:
            region, buf.offset, buf.length = source
            if region._handle is not self.handle:
                raise Invalid("the region was registered with another store")
            self.alive.append(region._held())
            buf.region = ffi.cast("cairn_region *", self.alive[-1].pointer)

    def done(self) -> None:
        if not isinstance(self.items, Batch):
            for one, item in zip(self.array, self.items):
                item.status = status_of(one.status)
                item.tier = Tier(one.ret_tier)
                item.bytes = one.ret_bytes
                item.check = one.ret_check
        self._let_go()
