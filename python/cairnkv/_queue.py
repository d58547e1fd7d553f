# SPDX-License-Identifier: Apache-2.0
"""Batches that are done in the background, and completions by an eventfd.

Threads: submit and cancel from any; one at a time waits. Memory: a batch in flight, with its items and buffers, is in a
table of this module, so that nothing of it goes while C may touch it, whatever the caller lets go of.
"""
import asyncio
import itertools
import os
import select
import threading
import time
from functools import partial
from typing import Any, Callable, Dict, List, Optional, Tuple

from cairnkv._cairn import ffi, lib
from cairnkv._errors import CairnError, Canceled, Closed, Invalid, check, error_of
from cairnkv._handle import Handle, cell_of, check_filled, place_in
from cairnkv._items import Items, Packed
from cairnkv._store import Space, Store, call_of
from cairnkv._types import Durability

_COMPLETIONS = 64


class Pending:
    """A batch that was submitted. `user` is the caller's."""

    def __init__(self, tag: int, items: Items) -> None:
        self.tag = tag
        self.items = items
        self.user: Any = None
        self.done = False
        self.error: Optional[CairnError] = None
        self._result = 0

    @property
    def result(self) -> int:
        """What the blocking form returns; raises where the batch failed as a whole, or is not done."""
        if not self.done:
            raise Invalid("the batch is still in flight")
        if self.error:
            raise self.error
        return self._result

    def __repr__(self) -> str:
        return f"<cairnkv.Pending {self.tag}: {'done' if self.done else 'in flight'}>"


class _Flight:
    """What a queue has in flight. It holds no queue, and the queue's finalizer holds it."""

    def __init__(self) -> None:
        self.tags = itertools.count(1)
        self.stop_read, self.stop_write = os.pipe()  # wakes who waits when the queue is closed
        self.batches: Dict[int, Tuple[Packed, Pending]] = {}

        self.done = ffi.new("struct cairn_completion[]", _COMPLETIONS)
        self.count = ffi.new("long *")

    def take(self) -> List[Pending]:
        """What `done` holds; a completion that was dealt with when an exception came is passed over."""
        found = []
        while self.count[0] > 0:
            one = self.done[self.count[0] - 1]
            if one.tag in self.batches:
                found.append(self.finish(one.tag, one.result))
            self.count[0] -= 1
        return found[::-1]

    def finish(self, tag: int, result: int) -> Pending:
        packed, pending = self.batches[tag]
        packed.done()
        if result < 0:
            pending.error = error_of(result, pending_text(result))
        pending._result = result
        pending.done = True
        self.batches.pop(tag, None)
        return pending


def pending_text(status: int) -> str:
    """Another thread did the work, so its line of text is not here."""
    text = bytes(ffi.string(lib.cairn_status_text(status))).decode()
    return f"the batch failed: {text}"


_flights: Dict[int, _Flight] = {}  # so that they outlive whoever dropped the queue


def _landed(cell: Any, number: int, _: Any) -> None:
    """The finalizer of a queue. Where a signal's handler raises in it, the buffers of this one queue stay for ever;
    never does one go while C may touch it."""
    ffi.release(cell)  # cancels what has not begun, and waits for the rest
    flight = _flights[number]
    for tag in list(flight.batches):
        flight.finish(tag, int(Canceled.status))
    os.close(flight.stop_read)
    os.close(flight.stop_write)
    del _flights[number]


class Queue:
    """A queue of at most `depth` batches in flight. Store.queue() makes one."""

    _numbers = itertools.count(1)

    def __init__(self, store: Store, depth: int = 64) -> None:
        self._store = store
        self._handle: Handle = store._handle
        self._waiting = threading.Lock()
        self._submitting = threading.Lock()
        with self._handle as pointer:
            number = next(Queue._numbers)
            cell = cell_of(self._handle, lib.CAIRNKV_QUEUE)
            check_filled(cell, lib.cairn_queue_open(pointer, depth, place_in(cell, "cairn_queue **")))
            self._flight = _flights[number] = _Flight()
            self._fd = int(lib.cairn_queue_fd(ffi.cast("cairn_queue *", cell.pointer)))
            self._cell: Any = ffi.gc(cell, partial(_landed, cell, number))
            self._handle.children.add(self)

    def fileno(self) -> int:
        """An eventfd that is readable while completions wait: for selectors and event loops. wait(0) takes them."""
        self._pointer()
        return self._fd

    @property
    def in_flight(self) -> int:
        return len(self._flight.batches)

    def _pointer(self) -> Any:
        cell = self._cell
        if self._handle.forked:
            raise self._handle.gone()
        if cell is None:
            raise Closed("the queue is closed")
        return ffi.cast("cairn_queue *", cell.pointer)

    def put(self, space: Space, items: Items, *, durability: int = Durability.DEFAULT, timeout_ms: int = 0,
            background: bool = False) -> Pending:
        """As Store.put, but returns at once. The buffers are the store's until the completion. Busy: `depth` are in
        flight."""
        return self._submit(space, items, True, call_of(durability, timeout_ms, background))

    def get(self, space: Space, items: Items, *, timeout_ms: int = 0, background: bool = False) -> Pending:
        """As Store.get, but returns at once. The buffers are the store's until the completion. Busy: `depth` are in
        flight."""
        return self._submit(space, items, False, call_of(0, timeout_ms, background))

    def _submit(self, space: Space, items: Items, put: bool, call: Any) -> Pending:
        pointer = self._store._space(space)
        packed = Packed(items, not put, self._handle)
        status = ffi.new("int *", -1)
        flight = self._flight
        tag = next(flight.tags)
        pending = Pending(tag, items)
        try:
            with self._handle, self._submitting:
                queue = self._pointer()
                flight.batches[tag] = packed, pending
                lib.cairnkv_submit(queue, put, pointer, packed.array, packed.count, call, tag, status)
                check(status[0])
        except BaseException:
            if status[0] < 0:
                flight.batches.pop(tag, None)
                packed.done()
            raise
        return pending

    def wait(self, timeout: Optional[float] = None, limit: int = _COMPLETIONS) -> List[Pending]:
        """Batches that are done, at least one unless `timeout` seconds passed (0: does not wait; None: for ever) or
        nothing is in flight. A signal's handler runs meanwhile, as in any wait of Python."""
        if limit < 1:
            raise Invalid("limit is at least 1")
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._waiting:
            while True:
                found = self._take(limit)
                if found or not self.in_flight:
                    return found
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return []
                poll = select.poll()
                poll.register(self._fd, select.POLLIN)
                poll.register(self._flight.stop_read, select.POLLIN)
                poll.poll(None if left is None else max(1, int(left * 1000)))

    def _take(self, limit: int) -> List[Pending]:
        flight = self._flight
        with self._handle:
            lib.cairnkv_wait(self._pointer(), flight.done, min(limit, _COMPLETIONS), 0, flight.count)
            check(flight.count[0])
            return flight.take()

    def cancel(self, pending: Pending) -> bool:
        """Cancels a batch that has not begun; it completes with Canceled. False: it has begun or is done."""
        with self._handle:
            queue = self._pointer()
            found = self._flight.batches.get(pending.tag)
            if found is None or found[1] is not pending:
                return False
            return int(lib.cairn_cancel(queue, pending.tag)) == 0

    def close(self) -> None:
        """Cancels what has not begun, and waits for what has. Who waits for completions gets Closed."""
        if self._handle.forked:
            return
        with self._submitting:
            cell, self._cell = self._cell, None
        if cell is None:
            return
        os.write(self._flight.stop_write, b"x")
        with self._waiting:
            self._drain(ffi.cast("cairn_queue *", cell.pointer))
            ffi.release(cell)

    def _drain(self, pointer: Any) -> None:
        """Takes the completions, so that each batch knows what became of it."""
        flight = self._flight
        flight.take()
        for tag in list(flight.batches):
            lib.cairn_cancel(pointer, tag)
        while flight.batches:
            lib.cairnkv_wait(pointer, flight.done, _COMPLETIONS, -1, flight.count)
            flight.take()

    def __enter__(self) -> "Queue":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncQueue:
    """A queue for one event loop of asyncio: its put and get are awaited. Made and used within the loop."""

    def __init__(self, store: Store, depth: int = 64) -> None:
        self._queue = store.queue(depth)
        self._loop = asyncio.get_running_loop()
        self._fd = self._queue.fileno()
        self._room = asyncio.Semaphore(depth)
        self._loop.add_reader(self._fd, self._completed)

    async def put(self, space: Space, items: Items, *, durability: int = Durability.DEFAULT, timeout_ms: int = 0,
                  background: bool = False) -> int:
        """As Store.put."""
        return await self._done(lambda: self._queue.put(space, items, durability=durability, timeout_ms=timeout_ms,
                                                        background=background))

    async def get(self, space: Space, items: Items, *, timeout_ms: int = 0, background: bool = False) -> int:
        """As Store.get."""
        return await self._done(lambda: self._queue.get(space, items, timeout_ms=timeout_ms, background=background))

    async def _done(self, submit: Callable[[], Pending]) -> int:
        async with self._room:
            pending = submit()
            pending.user = self._loop.create_future()
            try:
                await asyncio.shield(pending.user)
            except asyncio.CancelledError:
                # The buffers are the store's until the batch is over, so that is waited for all the same.
                self._queue.cancel(pending)
                await pending.user
                raise
            return pending.result

    def _completed(self) -> None:
        for pending in self._queue.wait(0):
            if pending.user is not None and not pending.user.done():
                pending.user.set_result(None)

    def close(self) -> None:
        """Cancels what has not begun, and waits for what has."""
        left = [pending for _, pending in self._queue._flight.batches.values()]
        self._loop.remove_reader(self._fd)
        self._queue.close()
        for pending in left:
            if pending.user is not None and not pending.user.done():
                pending.user.set_result(None)

    async def __aenter__(self) -> "AsyncQueue":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
