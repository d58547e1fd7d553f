# SPDX-License-Identifier: Apache-2.0
"""One process's end of the store: opened on a thread, kept open, its spaces described once. Both faces stand on it.

Threads: Client.store() and Client.space() may be called from any; they never wait for an open that is under way.
Invariant: an engine starts and goes on without its store. What is wrong for good (a place that is no store, a token
that is refused) ends the engine's start with one line; what may pass is tried again.
"""
import logging
import queue
import threading
import time
from typing import Any, Mapping, Optional

import cairnkv

log = logging.getLogger("vllm.cairn")

# Not mended by waiting.
FATAL = (cairnkv.Invalid, cairnkv.NotAStore, cairnkv.VersionError, cairnkv.Corrupt, cairnkv.AccessDenied)
RETRY_S = (0.5, 1, 2, 5, 10)
# Of kv_connector_extra_config: what is cairn's, and what it is passed on as where this process starts the cairnd.
OPTIONS = ("memory_bytes", "segment_bytes", "flash_write_bytes_day", "peers", "token_file", "catalog_bytes",
           "free_floor_bytes", "event_hashes_bytes")


class Client:
    def __init__(self, extra: Mapping[str, Any]) -> None:
        place = extra.get("store")
        if not place or not isinstance(place, str):
            raise ValueError('cairn: say where the store is: "kv_connector_extra_config": {"store": "/var/lib/cairn"}')
        self.place = place
        self._options = {name: extra[name] for name in OPTIONS if name in extra}
        if isinstance(self._options.get("peers"), str):
            self._options["peers"] = [self._options["peers"]]
        self._lock = threading.Lock()
        self._store: Optional[cairnkv.Store] = None
        self._spaces: dict[bytes, cairnkv.Space] = {}
        self._closed = threading.Event()
        try:
            self._open()
        except FATAL:
            raise
        except cairnkv.CairnError as error:
            log.warning("cairn: no store at %s yet, the engine goes on without it: %s", place, error)
            threading.Thread(target=self._keep_opening, name="cairn-open", daemon=True).start()

    def _open(self) -> None:
        named = self.place.startswith(("unix:", "tcp://", "tcp+plain://", "ucx+plain://"))
        options = {"token_file": self._options["token_file"]} if named and "token_file" in self._options else {}
        if not named:
            options = {**self._options, "create": True, "shared": True}
        store = cairnkv.Store(self.place, **options)
        with self._lock:
            self._store = store

    def _keep_opening(self) -> None:
        attempt = 0
        while not self._closed.wait(RETRY_S[min(attempt, len(RETRY_S) - 1)]):
            attempt += 1
            try:
                self._open()
            except cairnkv.CairnError as error:
                log.debug("cairn: still no store at %s: %s", self.place, error)
                continue
            log.info("cairn: the store at %s is there", self.place)
            return

    def store(self) -> Optional[cairnkv.Store]:
        return self._store

    def space(self, desc: cairnkv.Desc, anew: bool = False) -> Optional[cairnkv.Space]:
        """The described space; `anew` tells the store its recompute cost again. None: there is no store yet."""
        store = self._store
        if store is None:
            return None
        name = desc.id()
        with self._lock:
            space = self._spaces.get(name)
        if space is None or anew:
            space = store.space(desc)
            with self._lock:
                self._spaces[name] = space
        return space

    def close(self) -> None:
        self._closed.set()
        with self._lock:
            store, self._store = self._store, None
            self._spaces.clear()
        if store is not None:
            try:
                store.close()
            except cairnkv.CairnError as error:
                log.debug("cairn: close: %s", error)


class Watch:
    """How long the call that a thread is in has taken: by it others know not to wait behind it."""

    def __init__(self) -> None:
        self._since: Optional[float] = None

    def __enter__(self) -> "Watch":
        self._since = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self._since = None

    def stuck_s(self) -> float:
        since = self._since
        return time.monotonic() - since if since is not None else 0.0


def run_jobs(work: queue.SimpleQueue, name: str) -> None:
    """What a thread of a face does: calls what comes, until None comes."""
    while True:
        job = work.get()
        if job is None:
            return
        try:
            job()
        except cairnkv.CairnError as error:
            log.debug("cairn: %s: %s", name, error)
        except Exception:  # a defect of ours must not leave those waiting who need this thread
            log.exception("cairn: %s", name)
