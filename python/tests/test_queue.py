# SPDX-License-Identifier: Apache-2.0
"""What is done in the background: completions, buffers in flight, event loops, and what ends a wait."""
import asyncio
import gc
import os
import selectors
import signal
import subprocess
import threading
import time
import weakref
from contextlib import contextmanager
from typing import Any, Callable, Iterator, List

import cairnkv
import pytest
from cairnkv import AsyncQueue, Item, Space, Status, Store
from conftest import Server

Blocks = Callable[..., List[bytes]]
WAIT_S = 20.0


class Room(bytearray):
    """A bytearray that one can have a weak reference to."""


def keys_of(space: Space, count: int) -> List[bytes]:
    return space.derive().tokens(range(16 * count))


@contextmanager
def stopped(server: Server) -> Iterator[Callable[[], None]]:
    """The cairnd answers nothing until the block ends, or what is given is called."""
    server.stop()
    try:
        yield server.go_on
    finally:
        server.go_on()


@pytest.fixture
def remote(server: Server) -> Iterator[Store]:
    with Store(server.place) as opened:
        yield opened


@pytest.fixture
def filled(remote: Store, blocks: Blocks) -> Any:
    """A space, its keys and their blocks, of a store behind a cairnd."""
    space = remote.space(model="m", weights=bytes(range(32)), kv_dtype="bf16", block_tokens=16)
    data, keys = blocks(4), keys_of(space, 4)
    assert remote.put(space, [Item(key, block) for key, block in zip(keys, data)]) == 4
    return space, keys, data


def test_queue__batches_complete_when_waited_for(store: Store, space: Space, blocks: Blocks) -> None:
    data, keys = blocks(8), keys_of(space, 8)
    with store.queue(4) as queue:
        for key, block in zip(keys, data):
            while True:
                try:
                    queue.put(space, [Item(key, block)]).user = key
                    break
                except cairnkv.Busy:
                    assert queue.wait(WAIT_S)
        seen = []
        while queue.in_flight:
            seen += queue.wait(WAIT_S)
        assert all(one.result == 1 and one.done for one in seen) and queue.wait(0) == [] and queue.wait() == []
        rooms = [bytearray(10_000) for _ in keys]
        pending = queue.get(space, [Item(key, room) for key, room in zip(keys, rooms)])
        with pytest.raises(cairnkv.Invalid, match="in flight"):
            store.get(space, pending.items)
        assert queue.wait(WAIT_S) == [pending] and pending.result == 8 and rooms == data
        assert [one.status for one in pending.items] == [Status.OK] * 8  # type: ignore[union-attr]
    with pytest.raises(cairnkv.Closed):
        queue.wait()
    with pytest.raises(cairnkv.Closed):
        queue.get(space, [])


def test_queue__eventfd_is_readable_when_done(store: Store, space: Space, blocks: Blocks) -> None:
    key = keys_of(space, 1)[0]
    with store.queue() as queue, selectors.DefaultSelector() as selector:
        selector.register(queue, selectors.EVENT_READ)
        assert selector.select(0) == []
        pending = queue.put(space, [Item(key, blocks(1)[0])])
        assert selector.select(WAIT_S)
        assert queue.wait(0) == [pending]
        assert selector.select(0) == []


def test_queue__misses_are_statuses_when_asyncio(store: Store, space: Space, blocks: Blocks) -> None:
    data, keys = blocks(16), keys_of(space, 16)

    async def run() -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0)
                ticks += 1

        ticker = asyncio.ensure_future(tick())
        async with AsyncQueue(store, depth=3) as queue:
            done = await asyncio.gather(*[queue.put(space, [Item(key, block)]) for key, block in zip(keys, data)])
            assert done == [1] * 16
            rooms = [bytearray(10_000) for _ in keys]
            items = [Item(key, room) for key, room in zip(keys, rooms)]
            assert await asyncio.gather(*[queue.get(space, [item]) for item in items]) == [1] * 16
            assert rooms == data
            missing = Item(bytes(32), bytearray(1))
            assert await queue.get(space, [missing]) == 0 and missing.status is Status.MISS
            with pytest.raises(TypeError):
                await queue.get(space, ["no item"])  # type: ignore[list-item]
        ticker.cancel()
        assert ticks > 0

    asyncio.run(run())


def test_queue__buffers_live_when_dropped_in_flight(server: Server, remote: Store, filled: Any) -> None:
    space, keys, data = filled
    queue = remote.queue()
    with stopped(server):
        room = Room(10_000)
        alive = weakref.ref(room)
        with pytest.raises(BufferError):
            queue.get(space, [Item(keys[0], room)])
            room.append(1)
        del room
        gc.collect()
        assert alive() is not None and queue.in_flight == 1 and queue.wait(0.01) == []
    done = queue.wait(WAIT_S)
    assert alive() == data[0] and done[0].result == 1
    del done
    gc.collect()
    assert alive() is None


def test_queue__buffers_live_when_the_queue_is_dropped(server: Server, remote: Store, filled: Any) -> None:
    space, keys, _ = filled
    queue = remote.queue()
    room = Room(10_000)
    alive = weakref.ref(room)
    with stopped(server):
        queue.get(space, [Item(keys[0], room)])
        del room
        going_on = subprocess.Popen(["sh", "-c", f"sleep 0.3; kill -CONT {server.process.pid}"])
        del queue  # waits for what has begun
        gc.collect()
        assert alive() is None
        assert going_on.wait() == 0
    assert remote.read(space, keys[0]) is not None


def test_queue__cancel_takes_what_has_not_begun(server: Server, remote: Store, filled: Any) -> None:
    space, keys, _ = filled
    with remote.queue() as queue, stopped(server) as go_on:
        pending = [queue.get(space, [Item(keys[0], bytearray(10_000))]) for _ in range(40)]
        cancelled = [one for one in pending if queue.cancel(one)]
        assert cancelled and cancelled[-1] is pending[-1]
        go_on()
        while queue.in_flight:
            assert queue.wait(WAIT_S)
        with pytest.raises(cairnkv.Canceled):
            _ = cancelled[0].result
        assert cancelled[0].items[0].status is Status.CANCELED  # type: ignore[index]
        assert not queue.cancel(pending[0])


def test_queue__close_ends_a_wait_of_another_thread(server: Server, remote: Store, filled: Any) -> None:
    space, keys, _ = filled
    queue = remote.queue()
    ended: List[Any] = []

    def wait() -> None:
        try:
            ended.append(queue.wait())
        except cairnkv.Closed as error:
            ended.append(error)

    with stopped(server) as go_on:
        pending = queue.get(space, [Item(keys[0], bytearray(10_000))])
        thread = threading.Thread(target=wait)
        thread.start()
        while not queue._waiting.locked():
            time.sleep(0.001)
        go_on()
        remote.close()  # closes the queue as well
        thread.join(WAIT_S)
    assert not thread.is_alive() and pending.done
    assert isinstance(ended[0], cairnkv.Closed) or ended == [[pending]]


def test_queue__signals_are_handled_when_waiting(server: Server, remote: Store, filled: Any) -> None:
    space, keys, _ = filled

    class Alarm(Exception):
        pass

    def ring(*_: object) -> None:
        raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    try:
        with remote.queue() as queue, stopped(server):
            queue.get(space, [Item(keys[0], bytearray(10_000))])
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(Alarm):
                queue.wait()
            server.go_on()
            assert len(queue.wait(WAIT_S)) == 1
    finally:
        signal.signal(signal.SIGALRM, before)


def test_queue__others_run_when_a_get_waits(server: Server, remote: Store, filled: Any) -> None:
    """The interpreter's lock is let go of: while one thread waits in C, this one is never held up for as long."""
    space, keys, _ = filled
    item = Item(keys[0], bytearray(10_000))
    with stopped(server):
        thread = threading.Thread(target=remote.get, args=(space, [item]))
        thread.start()
        while not remote._handle.active:
            time.sleep(0.001)
        began = time.monotonic()
        gap, last = 0.0, began
        while last - began < 0.5:
            now = time.monotonic()
            gap, last = max(gap, now - last), now
        assert thread.is_alive() and gap < 0.25
    thread.join(WAIT_S)
    assert item.status is Status.OK


def test_queue__descriptors_are_given_back_when_closed(here: Store, space: Space) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        queue = here.queue()
        queue.get(space, [Item(bytes(32), bytearray(1))])
        del queue
        with here.queue() as other:
            other.fileno()
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before
