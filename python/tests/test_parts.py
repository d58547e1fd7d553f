# SPDX-License-Identifier: Apache-2.0
"""Put, get, lease, match, hints and sessions, over both kinds of stores."""
import array
import gc
import mmap
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, List

import cairnkv
import pytest
from cairnkv import Batch, Durability, Hint, Item, Planes, Reason, Space, Status, Store, Tier

Blocks = Callable[..., List[bytes]]


def keys_of(space: Space, count: int, first: int = 0) -> List[bytes]:
    return space.derive().tokens(range(first, first + 16 * count))


def put_all(store: Store, space: Space, data: List[bytes]) -> List[bytes]:
    keys = keys_of(space, len(data))
    items = [Item(key, block, parent=before) for key, block, before in zip(keys, data, [None, *keys])]
    assert store.put(space, items) == len(data)
    return keys


def test_parts__bytes_come_back_when_put(store: Store, space: Space, blocks: Blocks) -> None:
    data = blocks(5)
    keys = put_all(store, space, data)
    rooms = [bytearray(10_000) for _ in keys]
    items = [Item(key, room) for key, room in zip(keys, rooms)]
    assert store.get(space, items) == 5
    assert rooms == data
    assert [(one.status, one.tier, one.bytes) for one in items] == [(Status.OK, Tier.MEMORY, 10_000)] * 5
    assert all(one.check == cairnkv.check(block) for one, block in zip(items, data))
    assert store.read(space, keys[2]) == data[2]


def test_parts__status_is_per_item_when_one_misses(store: Store, space: Space, blocks: Blocks) -> None:
    keys = put_all(store, space, blocks(2))
    items = [Item(keys[0], bytearray(10_000)), Item(b"\1" * 32, bytearray(10)), Item(keys[1], bytearray(9_999))]
    assert store.get(space, items) == 1
    assert [one.status for one in items] == [Status.OK, Status.MISS, Status.SIZE]
    assert items[2].bytes == 10_000
    assert store.read(space, b"\1" * 32) is None
    again = [Item(keys[0], b"x" * 10_000), Item(keys[1], b"x")]
    assert store.put(space, again) == 1
    assert [one.status for one in again] == [Status.EXISTED, Status.CONFLICT]


def test_parts__any_buffer_serves_when_contiguous(store: Store, space: Space) -> None:
    key, other = keys_of(space, 2)
    head = array.array("d", [1.0, 2.0])
    mapped = mmap.mmap(-1, 4096)
    mapped[:4] = b"page"
    tail = bytearray(b"end")
    address, length = head.buffer_info()
    item = Item(key, [head, memoryview(mapped)[:4], tail, (address, length * 8)])
    assert store.put(space, [item]) == 1
    want = head.tobytes() + b"page" + b"end" + head.tobytes()
    assert store.read(space, key) == want
    rooms = [bytearray(20), array.array("B", bytes(len(want) - 20))]
    assert store.get(space, [Item(key, rooms)]) == 1
    assert b"".join(map(bytes, rooms)) == want
    with pytest.raises((BufferError, ValueError)):
        store.put(space, [Item(other, memoryview(b"abcdef")[::2])])
    with pytest.raises(BufferError):
        store.get(space, [Item(key, b"read only")])
    item.bufs = ()
    mapped.close()  # nothing holds it any more
    tail.append(1)


def test_parts__batch_moves_blocks_when_in_planes(store: Store, space: Space) -> None:
    layers = [bytearray(os.urandom(64 * 1024)) for _ in range(4)]
    views = [memoryview(layer) for layer in layers]
    import ctypes
    at = [ctypes.addressof(ctypes.c_char.from_buffer(layer)) for layer in layers]
    planes = Planes([(address, 4096, 4096) for address in at], owner=layers)
    keys = keys_of(space, 8)
    hashes = [bytes([index] * 32) for index in range(8)]
    assert store.put(space, Batch(keys, planes, range(8), chain=True, engine_hashes=hashes)) == 8
    with store.match(space, keys) as match:
        assert match.tokens == 128 and match.bytes == 8 * 4 * 4096
    back = [bytearray(64 * 1024) for _ in layers]
    at = [ctypes.addressof(ctypes.c_char.from_buffer(layer)) for layer in back]
    planes_back = Planes([(address, 4096, 4096) for address in at], owner=back)
    batch = Batch(b"".join(keys), planes_back, [15 - i for i in range(8)])
    assert store.get(space, batch) == 8 and batch.ok == 8 and len(batch) == 8
    assert (batch.status(7), batch.tier(7), batch.bytes(7)) == (Status.OK, Tier.MEMORY, 4 * 4096)
    for view, layer in zip(views, back):
        for index in range(8):
            assert layer[(15 - index) * 4096:(16 - index) * 4096] == view[index * 4096:(index + 1) * 4096]
    with pytest.raises(cairnkv.Invalid):
        Batch(keys, planes, range(7))
    with pytest.raises(IndexError):
        batch.status(8)


def test_parts__lease_is_the_bytes_when_held(store: Store, space: Space, blocks: Blocks) -> None:
    data = blocks(2)
    keys = put_all(store, space, data)
    with store.lease(space, keys[0]) as lease:  # type: ignore[union-attr]
        assert lease.view == data[0] and lease.view.readonly and len(lease) == 10_000
        assert lease.check == cairnkv.check(data[0]) and lease.tier is Tier.MEMORY and lease.fd >= 0
        assert os.pread(lease.fd, 16, lease.fd_offset) == data[0][:16]
        view = lease.view
        with pytest.raises(TypeError):
            view[0] = 1
    with pytest.raises(ValueError):
        view[0]
    with pytest.raises(cairnkv.Closed):
        _ = lease.view
    with pytest.raises(cairnkv.Closed):
        lease.verify()
    lease.release()
    assert store.lease(space, b"\7" * 32) is None


def test_parts__slice_keeps_the_lease_when_released(store: Store, space: Space, blocks: Blocks) -> None:
    data = blocks(1)
    keys = put_all(store, space, data)
    lease = store.lease(space, keys[0], unchecked=True)
    assert lease is not None and lease.verify()
    part = lease.view[100:200]
    lease.release()
    assert part == data[0][100:200]
    assert store.stat().leased_bytes >= 10_000
    with pytest.raises(cairnkv.Busy):
        store.close()
    assert not store.closed and store.read(space, keys[0]) == data[0]
    del part
    gc.collect()
    assert store.stat().leased_bytes == 0


def test_parts__lease_is_given_back_when_forgotten(store: Store, space: Space, blocks: Blocks) -> None:
    keys = put_all(store, space, blocks(1))
    for _ in range(3):
        store.lease(space, keys[0])
    gc.collect()
    assert store.stat().leased_bytes == 0
    match = store.match(space, keys)
    assert store.stat().matches == 1
    del match
    gc.collect()
    assert store.stat().matches == 0


def test_parts__match_tells_what_is_there(store: Store, space: Space, blocks: Blocks) -> None:
    keys = put_all(store, space, blocks(3))
    longer = keys_of(space, 5)
    with store.match(space, longer) as match:
        assert match.tokens == 48 and match.bytes == 30_000 and match.worth_tokens == 48
        assert match.tier_bytes[Tier.MEMORY] == 30_000 and sum(match.tier_bytes) == 30_000
        with store.join(space, match.ticket()) as other, ThreadPoolExecutor(1) as pool:
            assert other.tokens == 48
            said = pool.submit(other.agree, 2, 32, 5_000)
            assert match.agree(2, 48, timeout_ms=5_000) == 32 and said.result() == 32
    with pytest.raises(cairnkv.Closed):
        match.ticket()
    with pytest.raises(cairnkv.NotFound):
        store.join(space, bytes(32))
    with store.match(space, {0: keys[:2]}) as match:
        assert match.tokens == 32
    for hint in Hint:
        store.hint(space, keys, hint)


def test_parts__sessions_come_back_when_saved(store: Store, space: Space, blocks: Blocks) -> None:
    data = blocks(2)
    put_all(store, space, data)
    derive = space.derive()
    keys = derive.tokens(range(40))
    key, tokens = derive.tail()
    assert tokens == 8 and derive.parent == keys[-1]
    tail = Item(key, b"tail", tail=True)
    store.save(space, "chat 1", keys, owner="ann", tails=[tail], state=b"state", tokens=40, ttl_s=3600)
    assert tail.ok
    listed = store.sessions()
    assert [(one.name, one.owner, one.tokens, one.epoch, one.pinned) for one in listed] == [("chat 1", "ann", 40, 1, 0)]
    with store.resume("chat 1", owner="ann") as session:
        assert session.state == b"state" and session.chains == {0: keys} and session.info.space_id == space.id
        assert [(one.key, one.bytes) for one in session.tails] == [(key, 4)]
        assert session.space().id == space.id
        assert store.read(session.space(), key, tail=True) == b"tail"
    store.session_pin("chat 1", owner="ann")
    assert store.sessions("default")[0].pinned == 1
    store.session_close("chat 1", owner="ann")
    store.session_forget("chat 1", owner="ann")
    with pytest.raises(cairnkv.NotFound):
        store.resume("chat 1", owner="ann")
    with pytest.raises(cairnkv.NotFound, match="block"):
        store.save(space, "chat 2", [bytes(32)])


def test_parts__region_is_fenced_when_used(store: Store, space: Space) -> None:
    calls: List[int] = []
    memory = bytearray(os.urandom(8192))
    key = keys_of(space, 1)[0]
    with store.region(memory, fence=lambda: calls.append(1)) as region:
        assert store.put(space, [Item(key, (region, 4096, 4096))]) == 1
        want = bytes(memory[4096:])
        assert store.get(space, [Item(key, (region, 0, 4096))]) == 1
        assert memory[:4096] == want and len(calls) == 2 and region.fence_error is None
        with pytest.raises(BufferError):
            memory.append(0)
    memory.append(0)
    with pytest.raises(cairnkv.Closed):
        store.get(space, [Item(key, (region, 0, 4096))])


def test_parts__lists_agree_with_what_was_done(store: Store, space: Space, blocks: Blocks) -> None:
    keys = put_all(store, space, blocks(4))
    assert store.put(space, [Item(keys[0], b"x" * 10_000)], durability=Durability.FLASH) == 1
    store.sync()
    stat = store.stat()
    assert stat.tier[Tier.MEMORY].parts == 4 and stat.device[0].state == 0 and stat.device[0].path.endswith("flash")
    assert len(stat.misses_why) == len(Reason)
    assert [(one.id, one.parts) for one in store.spaces()] == [(space.id, 4)]
    assert {one.key_prefix for one in store.parts(space)} == {key[:16] for key in keys}
    assert store.tenants()[0].tenant == "default"
    events = [one for one in store.events() if one.tier == Tier.MEMORY]
    assert [one.key_prefix for one in events] == [key[:16] for key in keys]
    snapshot = store.snapshot()
    assert snapshot.life == events[0].life and len(snapshot.present) == 4
    assert store.explain(space, keys[0]).reason == Reason.PRESENT
    assert store.drop(space, keys[3:]) == 1
    assert store.explain(space.id, keys[3]).reason == Reason.DROPPED
    assert store.drop_space(space) == 3
    assert store.drop_tenant("default") == 0
    assert bool(store.clients()) == store.place.startswith("unix:")
