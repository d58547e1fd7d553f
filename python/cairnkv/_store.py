# SPDX-License-Identifier: Apache-2.0
"""A store, its spaces, leases, matches, sessions and regions."""
import os
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

from cairnkv._cairn import ffi, lib
from cairnkv._desc import Derive, Desc, to_c
from cairnkv._errors import Busy, Closed, Corrupt, Forked, Invalid, Status, check, error_of
from cairnkv._handle import Handle, Held, cell_of, check_filled, place_in
from cairnkv._info import (
    ClientInfo,
    Event,
    Explanation,
    PartInfo,
    Present,
    SessionInfo,
    Snapshot,
    SpaceInfo,
    Stat,
    TailInfo,
    TenantStat,
    from_c,
)
from cairnkv._items import TAIL, Item, Items, Packed, Source
from cairnkv._lists import gather
from cairnkv._types import (
    KEY_BYTES,
    Chains,
    Durability,
    Hint,
    Keys,
    Tier,
    c_text,
    one_key,
    pack_chains,
    pack_keys,
    split_keys,
)

if TYPE_CHECKING:
    from types import TracebackType

    from cairnkv._queue import Queue

_FLAGS = {"create": 1 << 0, "readonly": 1 << 1, "no_flash": 1 << 2, "shared": 1 << 3}
_IO = {"best": 0, "threads": 1, "uring": 2}
_NUMBERS = ("memory_bytes", "catalog_bytes", "free_floor_bytes", "segment_bytes", "io_threads", "workers",
            "pin_share_percent", "flash_write_bytes_day", "peer_wait_ms", "event_hashes_bytes")
TICKET_BYTES = 32
EVENTS_MAX = 65536


@dataclass
class TenantLimits:
    """What one tenant may have of the store (struct cairn_tenant_limits). `tenant` None: each without an entry of its
    own."""

    tenant: Optional[str] = None
    memory_quota_bytes: int = 0
    memory_reserved_bytes: int = 0
    flash_quota_bytes: int = 0
    flash_reserved_bytes: int = 0
    share: int = 0


Flash = Union[str, "os.PathLike[str]", Tuple[Union[str, "os.PathLike[str]"], int]]  # path, or (path, budget_bytes)


def _limits(tenants: Sequence[TenantLimits]) -> Tuple[Any, List[Any]]:
    array = ffi.new("struct cairn_tenant_limits[]", max(1, len(tenants)))
    alive: List[Any] = []
    for to, one in zip(array, tenants):
        alive.append(c_text(one.tenant, "tenant"))
        to.tenant = alive[-1]
        to.memory_quota_bytes, to.memory_reserved_bytes = one.memory_quota_bytes, one.memory_reserved_bytes
        to.flash_quota_bytes, to.flash_reserved_bytes = one.flash_quota_bytes, one.flash_reserved_bytes
        to.share = one.share
    return array, alive


def _options(given: Dict[str, Any]) -> Tuple[Any, List[Any]]:
    """struct cairn_options *, and what must live as long."""
    out = ffi.new("struct cairn_options *")
    alive: List[Any] = []
    out.size = ffi.sizeof("struct cairn_options")
    out.flags = sum(bit for name, bit in _FLAGS.items() if given[name])
    for name in _NUMBERS:
        setattr(out, name, given[name])
    if given["io_engine"] not in _IO:
        raise Invalid(f"io_engine: {', '.join(_IO)}, not {given['io_engine']!r}")
    out.io_engine = _IO[given["io_engine"]]
    flash, peers, tenants = given["flash"], given["peers"], given["tenants"]
    if flash:
        devices = ffi.new("struct cairn_flash[]", len(flash))
        alive.append(devices)
        for to, one in zip(devices, flash):
            path, budget = one if isinstance(one, tuple) else (one, 0)
            alive.append(c_text(os.fspath(path), "flash"))
            to.path, to.budget_bytes = alive[-1], budget
        out.flash, out.nflash = devices, len(flash)
    if peers:
        texts = [c_text(peer, "peers") for peer in peers]
        alive.append(texts)
        alive.append(ffi.new("char *[]", texts))
        out.peers, out.npeers = alive[-1], len(peers)
    if tenants:
        limits, more = _limits(tenants)
        alive += [limits, more]
        out.tenants, out.ntenants = limits, len(tenants)
    if given["token_file"] is not None:
        alive.append(c_text(os.fspath(given["token_file"]), "token_file"))
        out.token_file = alive[-1]
    return out, alive


def call_of(durability: int = 0, timeout_ms: int = 0, background: bool = False) -> Any:
    call = ffi.new("struct cairn_call *")
    call.size = ffi.sizeof("struct cairn_call")
    call.timeout_ms, call.durability, call.background = timeout_ms, int(durability), int(background)
    return call


class Space:
    """A space described to a store. It lives as long as the store."""

    def __init__(self, store: "Store", pointer: Any, desc: Optional[Desc] = None) -> None:
        self.store = store
        self.desc = desc
        self._ptr = pointer
        digest = ffi.new("cairn_digest *")
        lib.cairn_space_get_id(pointer, digest)
        self.id = bytes(ffi.buffer(digest))

    @property
    def text(self) -> str:
        """The description as text, one "field = value" a line."""
        with self.store._handle:
            length = lib.cairn_space_text(self._ptr, ffi.NULL, 0)
            text = ffi.new("char[]", length + 1)
            lib.cairn_space_text(self._ptr, text, length + 1)
        return bytes(ffi.string(text)).decode()

    def derive(self, group: int = 0) -> Derive:
        """Starts the keys of a chain."""
        ret = ffi.new("cairn_derive **")
        with self.store._handle:
            check(lib.cairn_derive_start(self._ptr, group, ret))
        return Derive(ret[0])

    def __repr__(self) -> str:
        return f"<cairnkv.Space {self.id.hex()[:16]}>"


def _keep(_cell: Any, _: Any) -> None:
    """The finalizer of memory that is part of what a cell holds."""


class Lease:
    """A right to read one part in place. `view` is its bytes, read-only and without a copy; after release() it raises
    ValueError. What was made of the view (slices, arrays) keeps the memory, and so the lease, until it is gone."""

    def __init__(self, handle: Handle, cell: Any) -> None:
        info = ffi.new("struct cairn_lease_info *")
        lib.cairn_lease_get_info(ffi.cast("cairn_lease *", cell.pointer), info)
        self.bytes = int(info.bytes)
        self.check = int(info.check)
        self.tier = Tier(info.tier)
        self.fd = int(info.fd)
        self.fd_offset = int(info.fd_offset)
        self._handle = handle
        # Each view that is made of this one holds `memory`, and so the cell, whose last holder gives the lease back.
        memory = ffi.gc(ffi.cast("char *", info.address), partial(_keep, cell))
        with memoryview(ffi.buffer(memory, self.bytes)) as writable:
            self._view: Optional[memoryview] = writable.toreadonly()
        self._address = int(ffi.cast("uintptr_t", info.address))
        handle.children.add(self)

    @property
    def view(self) -> memoryview:
        view = self._view
        if view is None:
            raise Closed("the lease was released")
        if self._handle.forked:
            raise self._handle.gone()
        return view

    @property
    def address(self) -> int:
        """Where the bytes lie in this process; good until release."""
        self.view  # noqa: B018  raises after release
        return self._address

    def verify(self) -> bool:
        """Whether the bytes have the checksum that they were put with."""
        view = self.view
        with view[:] as own:  # another thread's release() does not take the memory away meanwhile
            return bool(lib.cairn_check(ffi.from_buffer(own), self.bytes) == self.check)

    def release(self) -> None:
        """Gives the lease back; a second time does nothing."""
        view, self._view = self._view, None
        if view is not None:
            try:
                view.release()
            except BufferError:
                pass  # an array is made of it, which keeps the lease now

    close = release

    def __enter__(self) -> "Lease":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __len__(self) -> int:
        return self.bytes


class Match(Held):
    """How much of a prompt can be had. Its blocks are not evicted until release()."""

    _what, _ctype = "match", "cairn_match *"

    def __init__(self, handle: Handle, cell: Any) -> None:
        super().__init__(handle, cell)
        info = ffi.new("struct cairn_match_info *")
        lib.cairn_match_get_info(ffi.cast("cairn_match *", cell.pointer), info)
        self.tokens = int(info.tokens)
        self.worth_tokens = int(info.worth_tokens)
        self.bytes = int(info.bytes)
        self.tier_bytes: Tuple[int, ...] = tuple(info.tier_bytes)
        self.load_s = float(info.load_s)
        self.recompute_s = float(info.recompute_s)
        self.tier_s: Tuple[float, ...] = tuple(info.tier_s)

    def ticket(self) -> bytes:
        """For the other ranks of an engine: Store.join()."""
        ticket = ffi.new("struct cairn_ticket *")
        with self._handle, self._use:
            lib.cairn_match_ticket(self._pointer(), ticket)
        return bytes(ffi.buffer(ticket))

    def agree(self, ranks: int, tokens: int, timeout_ms: int = 0) -> int:
        """Says how many tokens this rank has fetched, and returns how many all of `ranks` have."""
        with self._handle as store, self._use:
            return check(lib.cairn_match_agree(store, self._pointer(), ranks, tokens, timeout_ms))

    def release(self) -> None:
        """Gives it back; a second time does nothing."""
        self.close()

    def __enter__(self) -> "Match":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Session(Held):
    """A session that was resumed: a copy of its manifest."""

    _what, _ctype = "session", "cairn_session *"

    def __init__(self, store: "Store", cell: Any) -> None:
        super().__init__(store._handle, cell)
        self._store = store
        pointer = ffi.cast("cairn_session *", cell.pointer)
        info = ffi.new("struct cairn_session_info *")
        info.size = ffi.sizeof("struct cairn_session_info")
        lib.cairn_session_get_info(pointer, info)
        self.info = from_c(SessionInfo, info)
        self.chains: Dict[int, List[bytes]] = {}
        chain = ffi.new("struct cairn_chain *")
        for index in range(info.nchains):
            check(lib.cairn_session_chain(pointer, index, chain))
            self.chains[chain.group] = split_keys(bytes(ffi.buffer(chain.keys, chain.nkeys * KEY_BYTES)))
        self.tails: List[TailInfo] = []
        tail = ffi.new("struct cairn_tail_info *")
        for index in range(info.ntails):
            check(lib.cairn_session_tail(pointer, index, tail))
            self.tails.append(from_c(TailInfo, tail))
        length = ffi.new("uint64_t *")
        state = lib.cairn_session_state(pointer, length)
        self.state = bytes(ffi.buffer(state, length[0])) if length[0] else b""

    def space(self) -> Space:
        """The space that it was saved in."""
        ret = ffi.new("cairn_space **")
        with self._handle as store, self._use:
            check(lib.cairn_session_space(store, self._pointer(), ret))
            return Space(self._store, ret[0])

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@ffi.def_extern(name="cairnkv_fence", error=1)
def _on_fence(arg: Any) -> int:
    region: _Fence = ffi.from_handle(arg)
    try:
        region.call()
        return 0
    except BaseException as error:
        region.error = error
        return 1


class _Fence:
    def __init__(self, call: Callable[[], object]) -> None:
        self.call = call
        self.error: Optional[BaseException] = None


def _unregister(cell: Any, alive: List[Any], _: Any) -> None:
    """Keeps what C may still use until it is unregistered."""
    ffi.release(cell)
    alive.clear()


class Region:
    """Memory that was registered: sources of items are (region, offset, length). Its buffer is held until close()."""

    def __init__(self, store: "Store", memory: Any, length: int, fd: int, fd_offset: int,
                 fence: Optional[Callable[[], object]]) -> None:
        desc = ffi.new("struct cairn_region_desc *")
        desc.size = ffi.sizeof("struct cairn_region_desc")
        desc.fd, desc.fd_offset, desc.length = fd, fd_offset, length
        self._alive: List[Any] = []
        if isinstance(memory, tuple):
            address, desc.length = memory
            desc.address = ffi.cast("void *", address)
        elif memory is not None:
            data = ffi.from_buffer("char[]", memory)
            desc.address, desc.length = data, len(data)
            self._alive.append(data)
        self._fence = _Fence(fence) if fence else None
        if self._fence:
            arg = ffi.new_handle(self._fence)
            desc.fence, desc.fence_arg = lib.cairnkv_fence, arg
            self._alive.append(arg)
        self._handle = store._handle
        self.length = int(desc.length)
        with store._handle as pointer:
            cell = cell_of(self._handle, lib.CAIRNKV_REGION)
            check_filled(cell, lib.cairn_region_register(pointer, desc, place_in(cell, "cairn_region **")))
            self._cell: Any = ffi.gc(cell, partial(_unregister, cell, self._alive))
            self._handle.children.add(self)

    def _held(self) -> Any:
        """The cell: who has it keeps the region registered."""
        if self._handle.forked:
            raise self._handle.gone()
        cell = self._cell
        if cell is None:
            raise Closed("the region was closed")
        return cell

    @property
    def fence_error(self) -> Optional[BaseException]:
        """What the fence raised last."""
        return self._fence.error if self._fence else None

    def close(self) -> None:
        """Unregisters it, when the last call that uses it is over."""
        self._cell = None

    def __enter__(self) -> "Region":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Store:
    """An open store. All of its methods may be called from any thread at once."""

    def __init__(self, place: Union[str, "os.PathLike[str]"], *, create: bool = False, readonly: bool = False,
                 no_flash: bool = False, shared: bool = False, memory_bytes: int = 0, catalog_bytes: int = 0,
                 flash: Sequence[Flash] = (), free_floor_bytes: int = 0, segment_bytes: int = 0, io_threads: int = 0,
                 workers: int = 0, pin_share_percent: int = 0, io_engine: str = "best", flash_write_bytes_day: int = 0,
                 tenants: Sequence[TenantLimits] = (), peers: Sequence[str] = (), peer_wait_ms: int = 0,
                 token_file: Union[None, str, "os.PathLike[str]"] = None, event_hashes_bytes: int = 0) -> None:
        """Opens "dir:PATH" or a path, "unix:PATH" or "tcp://HOST:PORT". The options are those of struct
        cairn_options."""
        given = dict(locals())
        options, _alive = _options(given)
        self._handle = Handle(c_text(os.fspath(place), "place"), options)
        self.place = os.fspath(place)

    # ---- the store itself

    def close(self) -> None:
        """Flushes and releases everything; queues, matches, leases and sessions too. Waits for calls of other threads.
        Busy: an array or slice made of a lease's view is still there, or it is called from within one of its calls; the
        store stays open then. A store that nobody has any more is closed by itself."""
        self._handle.close()

    @property
    def closed(self) -> bool:
        return self._handle.ptr is None

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, kind: Optional[type], error: Optional[BaseException], trace: Optional["TracebackType"]) -> None:
        try:
            self.close()
        except (Busy, Forked):
            if kind is None:
                raise

    def sync(self) -> None:
        """Flushes what was put with durability none."""
        with self._handle as store:
            check(lib.cairn_sync(store))

    def limits(self, tenants: Sequence[TenantLimits]) -> None:
        """Limits of tenants from now on, in place of all that were given before."""
        array, _alive = _limits(tenants)
        with self._handle as store:
            check(lib.cairn_limits(store, array, len(tenants)))

    def space(self, desc: Optional[Desc] = None, **described: Any) -> Space:
        """Describes a space: by a Desc, or by its fields as keywords."""
        if desc is None:
            desc = Desc(**described)
        elif described:
            raise TypeError("either a Desc, or its fields")
        c_desc, _alive = to_c(desc)
        ret = ffi.new("cairn_space **")
        with self._handle as store:
            check(lib.cairn_describe(store, c_desc, ret))
            return Space(self, ret[0], desc)

    def _space(self, space: Space) -> Any:
        if not isinstance(space, Space):
            raise TypeError(f"a space is a cairnkv.Space, not {type(space).__name__}")
        if space.store._handle is not self._handle:
            raise Invalid("the space was described to another store")
        return space._ptr

    # ---- parts

    def put(self, space: Space, items: Items, *, durability: int = Durability.DEFAULT, timeout_ms: int = 0,
            background: bool = False) -> int:
        """Puts a batch; buffers are free again when it returns. Returns how many are OK or EXISTED; each item says its
        own status. Raises only what concerns all of them."""
        return self._transfer(lib.cairn_put, space, items, False, call_of(durability, timeout_ms, background))

    def get(self, space: Space, items: Items, *, timeout_ms: int = 0, background: bool = False) -> int:
        """Gets a batch into the items' buffers. Returns how many are OK; a miss is a status, not an exception."""
        return self._transfer(lib.cairn_get, space, items, True, call_of(0, timeout_ms, background))

    def _transfer(self, verb: Callable[..., int], space: Space, items: Items, writable: bool, call: Any) -> int:
        pointer = self._space(space)
        packed = Packed(items, writable, self._handle)
        try:
            with self._handle as store:
                return check(verb(store, pointer, packed.array, packed.count, call))
        finally:
            packed.done()

    def read(self, space: Space, key: bytes, *, group: int = 0, part: int = 0, tail: bool = False,
             timeout_ms: int = 0) -> Optional[bytes]:
        """One part as bytes, checked; None where it is not there."""
        item = Item(key, bytearray(0), group=group, part=part, tail=tail)
        room = 0
        while True:
            data = bytearray(room)
            item.bufs = (data,)
            self.get(space, [item], timeout_ms=timeout_ms)
            if item.status is Status.OK:
                return bytes(memoryview(data)[:item.bytes])
            if item.status is Status.SIZE and item.bytes > room:
                room = item.bytes
            elif item.status > 0:
                return None
            else:
                raise error_of(int(item.status))

    def lease(self, space: Space, key: bytes, *, group: int = 0, part: int = 0, tail: bool = False,
              unchecked: bool = False, timeout_ms: int = 0, background: bool = False) -> Optional[Lease]:
        """Leases one part in place, in the memory tier; None where it is not there. Its checksum is verified unless
        `unchecked`: then Lease.verify(), or a comparison with Lease.check, is the caller's."""
        lease = self._lease(space, key, group, part, tail, timeout_ms, background)
        if lease is None or unchecked or lease.verify():
            return lease
        # A get finds the damage as well: it throws the copy out, and takes another where there is one.
        room = bytearray(lease.bytes)
        lease.release()
        self.get(space, [Item(key, room, group=group, part=part, tail=tail)], timeout_ms=timeout_ms)
        lease = self._lease(space, key, group, part, tail, timeout_ms, background)
        if lease is not None and not lease.verify():
            lease.release()
            return None
        return lease

    def _lease(self, space: Space, key: bytes, group: int, part: int, tail: bool, timeout_ms: int,
               background: bool) -> Optional[Lease]:
        item = ffi.new("struct cairn_item *")
        ffi.memmove(item.key.bytes, one_key(key), KEY_BYTES)
        item.group, item.part = group, part
        item.flags = TAIL if tail else 0
        pointer = self._space(space)
        with self._handle as store:
            cell = cell_of(self._handle, lib.CAIRNKV_LEASE)
            status = check_filled(cell, lib.cairn_lease_take(
                store, pointer, item, call_of(0, timeout_ms, background), place_in(cell, "cairn_lease **")))
            return Lease(self._handle, cell) if status == 0 else None

    def region(self, memory: Union[None, Source] = None, *, length: int = 0, fd: int = -1, fd_offset: int = 0,
               fence: Optional[Callable[[], object]] = None) -> Region:
        """Registers memory: a buffer, (address, length), or `length` bytes of `fd`. `fence` is called before its bytes
        are read and after they were written, from any thread; it must not call into the store."""
        return Region(self, memory, length, fd, fd_offset, fence)

    def queue(self, depth: int = 64) -> "Queue":
        """A queue of batches that are done in the background."""
        from cairnkv._queue import Queue
        return Queue(self, depth)

    # ---- matches and hints

    def match(self, space: Space, chains: Chains, *, parts: int = 0, timeout_ms: int = 0) -> Match:
        """How much of a prompt's chains can be had; no I/O. `parts`: a mask of those wanted; 0: all."""
        array, count, _alive = pack_chains(chains)
        pointer = self._space(space)
        with self._handle as store:
            cell = cell_of(self._handle, lib.CAIRNKV_MATCH)
            check_filled(cell, lib.cairn_match_take(store, pointer, array, count, parts, timeout_ms,
                                                    place_in(cell, "cairn_match **")))
            return Match(self._handle, cell)

    def join(self, space: Space, ticket: bytes) -> Match:
        """The match of another rank."""
        if len(ticket) != TICKET_BYTES:
            raise Invalid(f"a ticket has {TICKET_BYTES} bytes")
        c_ticket = ffi.from_buffer("struct cairn_ticket *", bytes(ticket))
        pointer = self._space(space)
        with self._handle as store:
            cell = cell_of(self._handle, lib.CAIRNKV_MATCH)
            check_filled(cell, lib.cairn_match_join(store, pointer, c_ticket, place_in(cell, "cairn_match **")))
            return Match(self._handle, cell)

    def hint(self, space: Space, chains: Chains, hint: Hint) -> None:
        """What is known of the future of chains."""
        array, count, _alive = pack_chains(chains)
        pointer = self._space(space)
        with self._handle as store:
            for index in range(count):
                check(lib.cairn_hint(store, pointer, array + index, int(hint)))

    # ---- sessions

    def save(self, space: Space, name: str, chains: Chains, *, owner: Optional[str] = None, tails: Sequence[Item] = (),
             state: bytes = b"", tokens: int = 0, ttl_s: int = 0, pin: bool = False,
             durability: int = Durability.DEFAULT, timeout_ms: int = 0) -> None:
        """Saves a session: blocks that were put before, and tails to be put with it."""
        save = ffi.new("struct cairn_save *")
        save.size = ffi.sizeof("struct cairn_save")
        tenant = (space.desc.tenant if space.desc else _tenant_of(space.text)) if isinstance(space, Space) else None
        alive = _name(save.name, name, tenant, owner)
        array, save.nchains, more = pack_chains(chains)
        save.chains = array
        alive.append((array, more))
        data = ffi.from_buffer(state)
        if len(data):
            save.state, save.state_bytes = data, len(data)
        save.tokens, save.ttl_s, save.pin = tokens, ttl_s, int(pin)
        save.durability, save.timeout_ms = int(durability), timeout_ms
        pointer = self._space(space)
        for item in tails:
            item.tail = True
        packed = Packed(list(tails), False, self._handle)
        try:
            if packed.count:
                save.tails, save.ntails = packed.array, packed.count
            with self._handle as store:
                check(lib.cairn_session_save(store, pointer, save))
        finally:
            packed.done()

    def resume(self, name: str, *, tenant: Optional[str] = None, owner: Optional[str] = None) -> Session:
        """The manifest of a saved session; its blocks are brought to memory in the background. NotFound; Corrupt."""
        c_name = ffi.new("struct cairn_session_name *")
        _alive = _name(c_name, name, tenant, owner)
        with self._handle as store:
            cell = cell_of(self._handle, lib.CAIRNKV_SESSION)
            if check_filled(cell, lib.cairn_session_resume(store, c_name, place_in(cell, "cairn_session **"))):
                raise Corrupt(f"the session {name!r} is damaged", Status.DAMAGED)
            return Session(self, cell)

    def sessions(self, tenant: Optional[str] = None) -> List[SessionInfo]:
        """All saved sessions, of one tenant or of all."""
        text = c_text(tenant, "tenant")
        with self._handle as store:
            return gather(SessionInfo, lambda each, arg: int(lib.cairn_session_list(store, text, each, arg)))

    def session_close(self, name: str, *, tenant: Optional[str] = None, owner: Optional[str] = None) -> None:
        """A hint that it will not return; it stays saved until evicted or forgotten."""
        c_name = ffi.new("struct cairn_session_name *")
        _alive = _name(c_name, name, tenant, owner)
        with self._handle as store:
            check(lib.cairn_session_close(store, c_name))

    def session_forget(self, name: str, *, tenant: Optional[str] = None, owner: Optional[str] = None) -> None:
        """Removes it durably; blocks that others share stay."""
        c_name = ffi.new("struct cairn_session_name *")
        _alive = _name(c_name, name, tenant, owner)
        with self._handle as store:
            check(lib.cairn_session_forget(store, c_name))

    def session_pin(self, name: str, pin: bool = True, *, ttl_s: int = 0, tenant: Optional[str] = None,
                    owner: Optional[str] = None) -> None:
        """Pins or unpins it; `ttl_s`: its new time to live from now, 0: none."""
        c_name = ffi.new("struct cairn_session_name *")
        _alive = _name(c_name, name, tenant, owner)
        with self._handle as store:
            check(lib.cairn_session_pin(store, c_name, int(pin), ttl_s))

    # ---- what is there, and why not

    def stat(self) -> Stat:
        stat = ffi.new("struct cairn_stat *")
        stat.size = ffi.sizeof("struct cairn_stat")
        with self._handle as store:
            check(lib.cairn_stat(store, stat))
        return from_c(Stat, stat)

    def spaces(self) -> List[SpaceInfo]:
        with self._handle as store:
            return gather(SpaceInfo, lambda each, arg: int(lib.cairn_list_spaces(store, each, arg)))

    def parts(self, space: Union[None, Space, bytes] = None) -> List[PartInfo]:
        space_id = ffi.NULL if space is None else _space_id(space)
        with self._handle as store:
            return gather(PartInfo, lambda each, arg: int(lib.cairn_list_parts(store, space_id, each, arg)))

    def tenants(self) -> List[TenantStat]:
        with self._handle as store:
            return gather(TenantStat, lambda each, arg: int(lib.cairn_list_tenants(store, each, arg)))

    def clients(self) -> List[ClientInfo]:
        """The clients of the cairnd behind the store; a store of this process has none."""
        with self._handle as store:
            return gather(ClientInfo, lambda each, arg: int(lib.cairn_list_clients(store, each, arg)))

    def events(self, after: int = 0, limit: int = 1024) -> List[Event]:
        """Events after a sequence number (0: the oldest kept)."""
        if not 1 <= limit <= EVENTS_MAX:
            raise Invalid(f"limit is 1 to {EVENTS_MAX}")
        events = ffi.new("struct cairn_event[]", limit)
        with self._handle as store:
            count = check(lib.cairn_events(store, after, events, limit))
        return [from_c(Event, one) for one in events[0:count]]

    def snapshot(self) -> Snapshot:
        """What is there, and the number of the last event that it includes."""
        sequence, life = ffi.new("uint64_t *"), ffi.new("uint64_t *")
        with self._handle as store:
            present = gather(Present, lambda each, arg: int(lib.cairn_snapshot(store, sequence, life, each, arg)))
        return Snapshot(int(sequence[0]), int(life[0]), present)

    def explain(self, space: Union[Space, bytes], key: bytes, part: int = 0) -> Explanation:
        """In which tier a part is or was last, and why it is gone."""
        out = ffi.new("struct cairn_explanation *")
        out.size = ffi.sizeof("struct cairn_explanation")
        c_key = ffi.from_buffer("cairn_key *", one_key(key))
        with self._handle as store:
            check(lib.cairn_explain(store, _space_id(space), c_key, part, out))
        return from_c(Explanation, out)

    def drop(self, space: Space, keys: Keys) -> int:
        """Drops keys, durably and in every tier. Returns how many parts were removed."""
        packed = ffi.from_buffer("cairn_key[]", pack_keys(keys))
        pointer = self._space(space)
        with self._handle as store:
            return check(lib.cairn_drop(store, pointer, packed, len(packed)))

    def drop_space(self, space: Union[Space, bytes]) -> int:
        with self._handle as store:
            return check(lib.cairn_drop_space(store, _space_id(space)))

    def drop_tenant(self, tenant: str) -> int:
        """Drops all of a tenant, its sessions too."""
        if tenant is None:
            raise TypeError("a tenant is a str")
        text = c_text(tenant, "tenant")
        with self._handle as store:
            return check(lib.cairn_drop_tenant(store, text))


def _space_id(space: Union[Space, bytes]) -> Any:
    space_id = space.id if isinstance(space, Space) else bytes(space)
    if len(space_id) != KEY_BYTES:
        raise Invalid("the id of a space has 32 bytes")
    return ffi.from_buffer("cairn_digest *", space_id)


def _name(to: Any, name: str, tenant: Optional[str], owner: Optional[str]) -> List[Any]:
    """Fills struct cairn_session_name; returns what must live as long."""
    if name is None:
        raise TypeError("the name of a session is a str")
    alive = [c_text(tenant, "tenant"), c_text(owner, "owner"), c_text(name, "name")]
    to.tenant, to.owner, to.name = alive
    return alive


def _tenant_of(text: str) -> Optional[str]:
    for line in text.split("\n"):
        name, _, value = line.partition(" = ")
        if name.strip() == "tenant":
            return value.strip().strip('"')
    return None
