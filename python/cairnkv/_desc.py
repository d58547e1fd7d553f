# SPDX-License-Identifier: Apache-2.0
"""Descriptions of spaces, and keys derived from tokens or from an engine's hashes."""
import array
import threading
from dataclasses import dataclass, field
from typing import Any, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

from cairnkv._cairn import ffi, lib
from cairnkv._errors import Invalid, check
from cairnkv._types import KEY_BYTES, Buffer, Rule, c_text, split_keys

_UINT32 = next(code for code in "ILH" if array.array(code).itemsize == 4)


@dataclass
class Group:
    """A group of layers whose blocks are needed by one rule."""

    block_tokens: int
    name: Optional[str] = None
    rule: Rule = Rule.ALL
    trailing_tokens: int = 0
    block_bytes: int = 0


@dataclass
class Part:
    """What of a block is put and got by itself: a rank's share, an indexer's data."""

    name: str
    replicated: bool = False
    optional: bool = False


@dataclass
class Desc:
    """Everything that decides what the bytes of a block mean and who may read them (struct cairn_space_desc)."""

    tenant: Optional[str] = None
    scheme: Optional[str] = None
    model: Optional[str] = None
    weights: Optional[bytes] = None
    adapter: Optional[bytes] = None
    adapter_scale: Optional[str] = None
    kv_dtype: Optional[str] = None
    quant: Optional[str] = None
    layers: int = 0
    kv_heads: int = 0
    head_size: int = 0
    layout: Optional[str] = None
    rope: Optional[str] = None
    isa: Optional[str] = None
    generation: Optional[bytes] = None
    groups: Sequence[Group] = ()
    block_tokens: int = 0
    block_bytes: int = 0
    parts: Sequence[Part] = ()
    fields: Mapping[str, Union[bytes, str]] = field(default_factory=dict)
    cost_a_s: float = 0.0
    cost_b_s: float = 0.0

    def id(self) -> bytes:
        """The 32 bytes that name the space, computed without a store."""
        desc, _alive = to_c(self)
        digest = ffi.new("cairn_digest *")
        check(lib.cairn_space_id(desc, digest))
        return bytes(ffi.buffer(digest))

    def text(self) -> str:
        """The description as text, one "field = value" a line."""
        desc, _alive = to_c(self)
        length = ffi.new("size_t *")
        check(lib.cairn_space_desc_text(desc, ffi.NULL, 0, length))
        text = ffi.new("char[]", length[0] + 1)
        check(lib.cairn_space_desc_text(desc, text, length[0] + 1, length))
        return bytes(ffi.string(text)).decode()

    def derive(self, group: int = 0) -> "Derive":
        """Starts the keys of a chain, without a store."""
        desc, _alive = to_c(self)
        ret = ffi.new("cairn_derive **")
        check(lib.cairn_derive_start_desc(desc, group, ret))
        return Derive(ret[0])


_TEXTS = ("tenant", "scheme", "model", "adapter_scale", "kv_dtype", "quant", "layout", "rope", "isa")
_NUMBERS = ("layers", "kv_heads", "head_size", "block_tokens", "block_bytes", "cost_a_s", "cost_b_s")


def _digest(value: Optional[bytes], name: str, length: int, ctype: str) -> Any:
    if value is None:
        return ffi.NULL
    if len(value) != length:
        raise Invalid(f"{name} has {len(value)} bytes, not {length}")
    return ffi.from_buffer(ctype, bytes(value))


def to_c(desc: Desc) -> Tuple[Any, List[Any]]:
    """struct cairn_space_desc *, and what must live as long."""
    if not isinstance(desc, Desc):
        raise TypeError(f"a description is a cairnkv.Desc, not {type(desc).__name__}")
    out = ffi.new("struct cairn_space_desc *")
    alive: List[Any] = [out]

    def keep(value: Any) -> Any:
        alive.append(value)
        return value

    out.size = ffi.sizeof("struct cairn_space_desc")
    for name in _TEXTS:
        setattr(out, name, keep(c_text(getattr(desc, name), name)))
    for name in _NUMBERS:
        setattr(out, name, getattr(desc, name))
    out.weights = keep(_digest(desc.weights, "weights", 32, "cairn_digest *"))
    out.adapter = keep(_digest(desc.adapter, "adapter", 32, "cairn_digest *"))
    out.generation = keep(_digest(desc.generation, "generation", 16, "uint8_t[]"))
    if desc.groups:
        out.groups = keep(ffi.new("struct cairn_group[]", len(desc.groups)))
        out.ngroups = len(desc.groups)
        for to, group in zip(out.groups[0:len(desc.groups)], desc.groups):
            to.name = keep(c_text(group.name, "the name of a group"))
            to.block_tokens, to.rule = group.block_tokens, int(group.rule)
            to.trailing_tokens, to.block_bytes = group.trailing_tokens, group.block_bytes
    if desc.parts:
        out.parts = keep(ffi.new("struct cairn_part[]", len(desc.parts)))
        out.nparts = len(desc.parts)
        for to, part in zip(out.parts[0:len(desc.parts)], desc.parts):
            to.name = keep(c_text(part.name, "the name of a part"))
            to.replicated, to.optional = int(part.replicated), int(part.optional)
    if desc.fields:
        out.fields = keep(ffi.new("struct cairn_field[]", len(desc.fields)))
        out.nfields = len(desc.fields)
        for to, (name, value) in zip(out.fields[0:len(desc.fields)], desc.fields.items()):
            data = value.encode() if isinstance(value, str) else bytes(value)
            to.name = keep(c_text(name, "the name of a field"))
            to.value = keep(ffi.from_buffer(data))
            to.length = len(data)
    return out, alive


def explain_desc(a: Desc, b: Desc) -> str:
    """One line "FIELD: A | B" for each field in which two descriptions differ; "" where none does."""
    first, _alive_a = to_c(a)
    second, _alive_b = to_c(b)
    length = check(lib.cairn_explain_desc(first, second, ffi.NULL, 0))
    text = ffi.new("char[]", length + 1)
    check(lib.cairn_explain_desc(first, second, text, length + 1))
    return bytes(ffi.string(text)).decode("utf-8", "replace")


def _tokens(tokens: Union[Buffer, Iterable[int]]) -> Any:
    """uint32_t[] of a buffer of 4-byte integers, or of any integers."""
    try:
        view = memoryview(tokens)  # type: ignore[arg-type]
    except TypeError:
        return ffi.from_buffer("uint32_t[]", array.array(_UINT32, tokens))
    with view:
        if view.itemsize != 4 or view.format not in ("I", "i", "L", "l", "<I", "<i", "@I", "@i", "=I", "=i"):
            raise Invalid(f"tokens must be 4-byte integers, not {view.format!r} of {view.itemsize} bytes")
        return ffi.from_buffer("uint32_t[]", tokens)


class Derive:
    """The keys of a chain, block after block."""

    def __init__(self, pointer: Any) -> None:
        self._ptr = ffi.gc(pointer, lib.cairn_derive_free)
        self._use = threading.Lock()

    def tokens(self, tokens: Union[Buffer, Iterable[int]], extras: Sequence[Tuple[int, bytes]] = ()) -> List[bytes]:
        """Scheme tokens/1: takes tokens, and returns the keys of the blocks that are full now. `extras`: (index of a
        token in the whole prompt, bytes)."""
        taken = _tokens(tokens)
        items = ffi.new("struct cairn_extra[]", max(1, len(extras)))
        alive = []
        for to, (token, data) in zip(items, extras):
            alive.append(ffi.from_buffer(data))
            to.token, to.bytes, to.length = token, alive[-1], len(data)
        with self._use:
            room = 1 + len(taken)  # a block has at least one token
            keys = ffi.new("cairn_key[]", room)
            count = check(lib.cairn_derive_tokens(self._ptr, taken, len(taken), items, len(extras), keys, room))
        return split_keys(bytes(ffi.buffer(keys, count * KEY_BYTES)))

    def hash(self, engine_hash: bytes) -> bytes:
        """Schemes of engines: the key of one of the engine's hashes."""
        key = ffi.new("cairn_key *")
        data = ffi.from_buffer(engine_hash)
        with self._use:
            check(lib.cairn_derive_hash(self._ptr, data, len(data), key))
        return bytes(ffi.buffer(key))

    def hashes(self, engine_hashes: Iterable[bytes]) -> List[bytes]:
        """The keys of many, all of one length."""
        listed = list(engine_hashes)
        if not listed:
            return []
        length = len(listed[0])
        if any(len(one) != length for one in listed):
            raise Invalid("the engine's hashes differ in length")
        keys = ffi.new("cairn_key[]", len(listed))
        packed = ffi.from_buffer("uint8_t[]", b"".join(listed))
        with self._use:
            check(lib.cairnkv_derive_hashes(self._ptr, packed, length, len(listed), keys))
        return split_keys(bytes(ffi.buffer(keys)))

    def block(self, data: Buffer) -> bytes:
        """Scheme file/1: the key of the next block of a file, at most 1 MiB."""
        key = ffi.new("cairn_key *")
        with ffi.from_buffer(data) as taken, self._use:
            check(lib.cairn_derive_bytes(self._ptr, taken, len(taken), key))
        return bytes(ffi.buffer(key))

    def tail(self) -> Tuple[bytes, int]:
        """The key of the tokens since the last full block, and their number."""
        key, tokens = ffi.new("cairn_key *"), ffi.new("uint32_t *")
        with self._use:
            check(lib.cairn_derive_tail(self._ptr, key, tokens))
        return bytes(ffi.buffer(key)), int(tokens[0])

    @property
    def parent(self) -> bytes:
        """The key of the last full block, or of the chain's root before the first."""
        key = ffi.new("cairn_key *")
        with self._use:
            lib.cairn_derive_parent(self._ptr, key)
        return bytes(ffi.buffer(key))
