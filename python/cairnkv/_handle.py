# SPDX-License-Identifier: Apache-2.0
"""The life of an open store, and of what it hands out.

The C library asks that cairn_close is the last call, and that leases, matches, queues and sessions are gone before.
Here that is made sure of. Calls under way are counted, and what is handed out lies in cells, whose finalizers are C
(python/batch.h): so it does not matter in which order Python finalizes things, nor where a signal's handler raises.

Threads: any. Finalizers run anywhere, even inside of this code, so they take no lock.
"""
import atexit
import os
import sys
import threading
import weakref
from typing import Any, Dict

from cairnkv._cairn import ffi, lib
from cairnkv._errors import Busy, Closed, Forked, check

EXIT_WAIT_S = 5.0  # how long the end of the interpreter waits for calls of other threads


def _within_a_call() -> bool:
    """Whether this thread closes a store from within a call. A handler that raised between a call and its count leaves
    the count too high, so that does not tell."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_globals.get("__name__", "").startswith("cairnkv._") and frame.f_code.co_name not in _CLOSING:
            return True
    return False


_CLOSING = ("close", "__exit__", "_close_all")


class Handle:
    """An open store. `with handle:` around each call keeps it open until the call is over."""

    __slots__ = ("life", "ptr", "forked", "closing", "active", "children", "lock", "quiet", "__weakref__")

    def __init__(self, place: Any, options: Any) -> None:
        # Closes a store that everybody forgot, when the last that it handed out was given back.
        self.life = ffi.gc(lib.cairnkv_life_new(), lib.cairnkv_life_drop)
        check(lib.cairnkv_life_open(self.life, place, options))
        self.ptr = self.life.store
        self.forked = False
        self.closing = False
        self.active: Dict[int, int] = {}  # calls under way, by thread; each writes its own entry
        self.children: weakref.WeakSet[Any] = weakref.WeakSet()  # they have close()
        self.lock = threading.Lock()  # one closes at a time
        self.quiet = threading.Condition()
        _handles.add(self)

    def __enter__(self) -> Any:
        thread = threading.get_ident()
        self.active[thread] = self.active.get(thread, 0) + 1
        if self.closing or self.ptr is None:
            self.__exit__()
            raise self.gone()
        return self.ptr

    def __exit__(self, *_: object) -> None:
        thread = threading.get_ident()
        count = self.active.get(thread, 0) - 1
        if count > 0:
            self.active[thread] = count
        else:
            self.active.pop(thread, None)
        if self.closing:
            with self.quiet:
                self.quiet.notify_all()

    def gone(self) -> Exception:
        if self.forked:
            return Forked("the store was opened before a fork: open it in the child process")
        return Closed("the store is closed")

    def _calm(self) -> bool:
        own = threading.get_ident()
        return all(thread == own for thread in list(self.active))

    def close(self, at_exit: bool = False) -> None:
        if not at_exit and self.active.get(threading.get_ident()) and _within_a_call():
            raise Busy("the store can not be closed from within one of its calls, as by the handler of a signal")
        with self.lock:
            if self.ptr is None:
                return
            # Queues may have somebody who waits in a call: closing them ends that.
            for child in list(self.children):
                child.close()
            self.closing = True
            with self.quiet:
                calm = self.quiet.wait_for(self._calm, EXIT_WAIT_S if at_exit else None)
            for child in list(self.children):
                child.close()
            status = lib.cairnkv_life_close(self.life) if calm else lib.CAIRN_E_BUSY
            if status == lib.CAIRN_E_BUSY:
                self.closing = False
                what = "calls are under way"
                if calm:
                    what = f"{self.life.refs - 1} held; arrays or slices made of a lease's view keep it"
                raise Busy(f"the store can not be closed yet: {what}")
            self.ptr = None
        check(status)


_handles: "weakref.WeakSet[Handle]" = weakref.WeakSet()


def _close_all() -> None:
    """At the end of the interpreter: what was put is flushed. What is still held stays open; the kernel takes it."""
    for handle in list(_handles):
        if not handle.forked:
            try:
                handle.close(at_exit=True)
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


def cell_of(handle: Handle, kind: int) -> Any:
    """A place for a pointer that C hands out. It is given back when the cell is released, or nobody has it any more.
    To be called with the handle held."""
    cell = ffi.gc(ffi.new("struct cairnkv_cell *"), lib.cairnkv_cell_close)
    lib.cairnkv_cell_open(cell, handle.life, kind)
    return cell


def place_in(cell: Any, ctype: str) -> Any:
    """Where C shall put the pointer, as a `ctype`."""
    return ffi.cast(ctype, ffi.addressof(cell[0], "pointer"))


def check_filled(cell: Any, value: int) -> int:
    """check() of the call that was to fill a cell. Where it did not, the cell goes at once: whoever keeps the exception
    keeps the frames of the call, and the store could not be closed for a cell with nothing in it."""
    if value != 0:
        ffi.release(cell)
    return check(value)


class Held:
    """Something of C that a store handed out, used by one thread at a time."""

    _what = ""

    _ctype = ""

    def __init__(self, handle: Handle, cell: Any) -> None:
        self._handle = handle
        self._use = threading.Lock()
        self._cell = cell
        handle.children.add(self)

    def _pointer(self) -> Any:
        """To be called with _use and the handle held."""
        if self._cell is None:
            raise Closed(f"the {self._what} was released")
        return ffi.cast(self._ctype, self._cell.pointer)

    def close(self) -> None:
        """Gives it back; a second time does nothing."""
        if self._handle.forked:
            return
        with self._use:
            cell, self._cell = self._cell, None
            if cell is not None:
                ffi.release(cell)
