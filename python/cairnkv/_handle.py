# SPDX-License-Identifier: Apache-2.0
"""The life of an open store, and of what it hands out.

The C library asks that cairn_close is the last call, and that leases, matches, queues and sessions are gone before.
Here that is made sure of: calls under way are counted, and so is what is held.

Threads: any. Finalizers run anywhere, even inside of this code, so they take no lock: they call C, and then take
themselves off `held` by one step of the interpreter.
"""
import atexit
import itertools
import os
import threading
import weakref
from functools import partial
from typing import Any, Callable, Dict, List, Optional

from cairnkv._cairn import ffi, lib
from cairnkv._errors import Busy, Closed, Forked, check

EXIT_WAIT_S = 5.0  # how long the end of the interpreter waits for calls of other threads


class Handle:
    """An open store. `with handle:` around each call keeps it open until the call is over."""

    __slots__ = ("ptr", "forked", "closing", "active", "held", "children", "lock", "quiet", "__weakref__")

    def __init__(self, ptr: Any) -> None:
        self.ptr = ptr
        self.forked = False
        self.closing = False
        self.active: List[None] = []  # one for each call under way
        self.held: Dict[int, str] = {}  # what C has handed out and not got back
        self.children: weakref.WeakSet[Any] = weakref.WeakSet()  # they have close()
        self.lock = threading.Lock()  # one closes at a time
        self.quiet = threading.Condition()
        _handles.add(self)

    def __enter__(self) -> Any:
        self.active.append(None)
        if self.closing or self.ptr is None:
            self.__exit__()
            raise self.gone()
        return self.ptr

    def __exit__(self, *_: object) -> None:
        self.active.pop()
        if self.closing:
            with self.quiet:
                self.quiet.notify_all()

    def gone(self) -> Exception:
        if self.forked:
            return Forked("the store was opened before a fork: open it in the child process")
        return Closed("the store is closed")

    def close(self, wait_s: Optional[float] = None) -> None:
        with self.lock:
            if self.ptr is None:
                return
            # Queues may have somebody who waits in a call: closing them ends that.
            for child in list(self.children):
                child.close()
            self.closing = True
            with self.quiet:
                calm = self.quiet.wait_for(lambda: not self.active, wait_s)
            for child in list(self.children):
                child.close()
            if self.held or not calm:
                self.closing = False
                what = ", ".join(sorted(set(self.held.values()))) or "calls under way"
                raise Busy(f"the store can not be closed yet: {len(self.held)} held ({what}); arrays or slices made of "
                           "a lease's view keep it")
            ptr, self.ptr = self.ptr, None
        check(lib.cairn_close(ptr))


_numbers = itertools.count()
_handles: "weakref.WeakSet[Handle]" = weakref.WeakSet()


def _close_all() -> None:
    """At the end of the interpreter: what was put is flushed. What is still held stays open; the kernel takes it."""
    for handle in list(_handles):
        if not handle.forked:
            try:
                handle.close(EXIT_WAIT_S)
            except Exception:  # nobody is left to tell
                pass


def _mark_forked() -> None:
    for handle in list(_handles):
        handle.forked = True
        handle.ptr = None
        handle.lock = threading.Lock()
        handle.quiet = threading.Condition()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_mark_forked)


def _free(handle: Handle, number: int, free: Callable[[Any, Any], None], pointer: Any, _: Any) -> None:
    if not handle.forked:
        free(handle.ptr, pointer)
    handle.held.pop(number, None)


def hold(handle: Handle, what: str, pointer: Any, free: Callable[[Any, Any], None], through: Any = None) -> Any:
    """`pointer`, freed by free(store, pointer) when it is released or nobody has it any more. `through`: another
    pointer that stands for it."""
    number = next(_numbers)
    handle.held[number] = what
    return ffi.gc(pointer if through is None else through, partial(_free, handle, number, free, pointer))


class Held:
    """Something of C that a store handed out, used by one thread at a time."""

    _what = ""

    def __init__(self, handle: Handle, pointer: Any, free: Callable[[Any, Any], None]) -> None:
        self._handle = handle
        self._use = threading.Lock()
        self._ptr = hold(handle, self._what, pointer, free)
        handle.children.add(self)

    def _pointer(self) -> Any:
        """To be called with _use and the handle held."""
        if self._ptr is None:
            raise Closed(f"the {self._what} was released")
        return self._ptr

    def close(self) -> None:
        """Gives it back; a second time does nothing."""
        if self._handle.forked:
            return
        with self._use:
            pointer, self._ptr = self._ptr, None
            if pointer is not None:
                ffi.release(pointer)
