# SPDX-License-Identifier: Apache-2.0
"""The connector's half in each worker's process: moves blocks between the engine's KV memory and the store.

Threads: vLLM's model thread calls the methods of Worker; loads run on LOADERS threads, saves on one. Loads and saves
go straight between the engine's tensors and cairn's memory, by C, without the GIL: one item per block with one run of
bytes per layer. What the threads share is guarded by `_lock`; the saver's turn by `_saving`, a condition on it.
Invariants: a block is read by a save only while its request holds it: until the end of its fence, or of
handle_preemptions. A load that was asked for is reported exactly once, with the blocks that did not come.
"""
import collections
import logging
import queue
import threading
import time
from typing import Any, Mapping, Optional

import cairnkv

from .client import Client
from .cost import Cost
from .identity import Identity, Refused
from .plan import CairnStats, Load, Plan, Save, WorkerMeta

log = logging.getLogger("vllm.cairn")

LOADERS = 2
SAVE_BATCH = 8           # blocks a put: what a preemption may have to wait for
SAVE_TIMEOUT_MS = 5000
SAVE_QUEUE_BYTES = 1 << 30
AWAY_S = 1.0             # so long saves are dropped after a put of which nothing was taken: the store is away


class Worker:
    def __init__(self, vllm_config: Any, kv_cache_config: Any, extra: Mapping[str, Any], identity: Identity) -> None:
        rank = vllm_config.parallel_config.rank
        self.identity = identity
        self.part, self.saver = identity.part(rank), identity.saves(rank)
        self.client = Client(extra)
        self.layers = kv_cache_config.kv_cache_groups[0].layer_names
        self.block_bytes = 0
        self.planes = cairnkv.Planes([])
        self.save_queue_bytes = int(extra.get("save_queue_bytes", SAVE_QUEUE_BYTES))
        self.descs: dict[int, cairnkv.Desc] = {}
        self.cost = Cost()
        self._begun = 0.0
        self._lock = threading.Lock()
        self._saving = threading.Condition(self._lock)
        self._stats = CairnStats()
        self._loaded: list[tuple[str, set[int]]] = []
        self._bad: set[int] = set()
        self._saves: collections.deque[Save] = collections.deque()
        self._queued_bytes = 0
        self._now: Optional[str] = None           # request whose blocks the saver reads
        self._pending: collections.Counter = collections.Counter()  # request -> saves that wait or run
        self._fenced: set[str] = set()
        self._away_until = 0.0
        self._lost_at = 0.0                       # when a load ended that found the store away
        self._stop = False
        self._loads: queue.SimpleQueue = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._run_loads, name=f"cairn-load-{n}", daemon=True)
                         for n in range(LOADERS)]
        self._threads.append(threading.Thread(target=self._run_saves, name="cairn-save", daemon=True))
        for thread in self._threads:
            thread.start()

    # ---- the engine's memory ----

    def register(self, kv_caches: Mapping[str, Any]) -> None:
        """Learns where block i of each layer lies: one run of bytes, at the same distance from the one before."""
        planes, tensors = [], []
        for name in self.layers:
            tensor = kv_caches.get(name)
            if tensor is None:  # pipeline stages hold some of the layers
                continue
            if tensor.device.type != "cpu":
                raise Refused(f"cairn: CairnConnector moves KV that lies in the memory of the host; {name} lies on "
                              f"{tensor.device.type}. Take CairnTier there (docs/VLLM.md)")
            item = tensor.element_size()
            length = tensor[0].numel() * item
            # Whatever the order of the axes within a block: its bytes must be one run, or they are several blocks'.
            span = sum((size - 1) * stride for size, stride in zip(tensor.shape[1:], tensor.stride()[1:])) + 1
            if span * item != length:
                raise Refused(f"cairn: a block of {name} is not one run of bytes (shape {tuple(tensor.shape)}, strides "
                              f"{tensor.stride()}); set another --kv-cache-layout, or take CairnTier")
            planes.append((tensor.data_ptr(), tensor.stride(0) * item, length))
            tensors.append(tensor)
        self.block_bytes = sum(length for _, _, length in planes)
        said = self.identity.base.groups[0].block_bytes
        if said and said != self.block_bytes:
            raise Refused(f"cairn: blocks have {self.block_bytes} bytes, and by vLLM's configuration {said}")
        self.planes = cairnkv.Planes(planes, owner=tensors)

    # ---- model thread, each step ----

    def preempted(self, plan: Plan) -> None:
        """Before the step: what is about to be overwritten must not be read any more."""
        if not plan.preempted:
            return
        gone = set(plan.preempted)
        with self._lock:
            for save in [save for save in self._saves if save.request in gone]:
                self._saves.remove(save)
                self._forget(save)
                self._stats.add("save_dropped_blocks", len(save.block_ids))
            while self._now in gone:
                self._saving.wait()

    def begin(self, plan: Plan) -> None:
        self.descs.update(plan.spaces)
        self._begun = time.perf_counter()

    def start_loads(self, plan: Plan) -> None:
        if plan.prefill[0]:
            self.cost.add(*plan.prefill, time.perf_counter() - self._begun)
        for request, load in plan.loads.items():
            self._loads.put((request, load, time.monotonic()))

    def start_saves(self, plan: Plan) -> None:
        with self._lock:
            for save in plan.saves if self.saver else ():
                size = len(save.block_ids) * self.block_bytes
                if self._queued_bytes + size > self.save_queue_bytes or self._is_away():
                    self._stats.add("save_dropped_blocks", len(save.block_ids))
                    continue
                self._queued_bytes += size
                self._pending[save.request] += 1
                self._saves.append(save)
            self._fenced.update(plan.fenced)
            self._saving.notify_all()

    def results(self) -> tuple[set[str], set[str]]:
        """Requests whose fence is over, and those whose load has ended."""
        with self._lock:
            sent = {request for request in self._fenced if not self._pending[request]}
            self._fenced -= sent
            for request in sent:
                del self._pending[request]
            loaded, self._loaded = self._loaded, []
            self._bad = set().union(*(bad for _, bad in loaded))
        return sent, {request for request, _ in loaded}

    def bad_blocks(self) -> set[int]:
        """Of the loads that results() told last."""
        return self._bad

    def take_stats(self) -> Optional[CairnStats]:
        with self._lock:
            return self._stats.take()

    def meta(self) -> Optional[WorkerMeta]:
        news = self.cost.news()
        return WorkerMeta(*news) if news else None

    # ---- loads ----

    def _run_loads(self) -> None:
        while True:
            job = self._loads.get()
            if job is None:
                return
            request, load, asked = job
            began, away, bad = time.monotonic(), False, set(load.block_ids)
            stats = CairnStats()
            try:
                if asked > self._lost_at:
                    bad, away = self._load(load, stats)
            except Exception as error:  # whatever it is: they are computed
                away = True
                if not isinstance(error, cairnkv.CairnError):
                    log.exception("cairn: load")
                log.warning("cairn: a load of %d blocks failed, they are computed: %s", len(load.block_ids), error)
            took = time.monotonic() - began
            stats.add("loads")
            stats.add("load_seconds", took)
            if bad:
                stats.add("load_failed_blocks", len(bad))
            with self._lock:
                if len(bad) == len(load.block_ids):
                    stats.add("load_lost_seconds", took)
                if away:  # those that waited behind it do not wait for the store as well
                    self._lost_at = time.monotonic()
                self._stats.aggregate(stats)
                self._loaded.append((request, bad))

    def _load(self, load: Load, stats: CairnStats) -> tuple[set[int], bool]:
        """The blocks that did not come, and whether the store is to blame: late, or away."""
        space, store = self.client.space(self.descs[load.space]), self.client.store()
        if space is None or store is None:
            return set(load.block_ids), True
        log.debug("cairn: loads %d blocks within %d ms", len(load.block_ids), load.timeout_ms)
        batch = cairnkv.Batch(load.keys, self.planes, load.block_ids, part=self.part)
        store.get(space, batch, timeout_ms=load.timeout_ms)
        bad, damaged = set(), 0
        for block, status in zip(load.block_ids, batch.statuses):
            if status != cairnkv.Status.OK:
                bad.add(block)
                damaged += status == cairnkv.Status.DAMAGED
        stats.add("load_bytes", (len(load.block_ids) - len(bad)) * self.block_bytes)
        if damaged:
            stats.add("load_damaged_blocks", damaged)
        if bad:
            first = next(status for status in batch.statuses if status != cairnkv.Status.OK)
            log.warning("cairn: %d of %d blocks did not come (%s), they are computed", len(bad), len(load.block_ids),
                        cairnkv.Status(first).name.lower())
        away = all(status in (cairnkv.Status.LATE, cairnkv.Status.IO) for status in batch.statuses)
        return bad, away

    # ---- saves ----

    def _is_away(self) -> bool:
        return self.client.store() is None or time.monotonic() < self._away_until

    def _drop_all(self) -> None:
        while self._saves:
            save = self._saves.popleft()
            self._forget(save)
            self._stats.add("save_dropped_blocks", len(save.block_ids))

    def _forget(self, save: Save) -> None:
        self._queued_bytes -= len(save.block_ids) * self.block_bytes
        self._pending[save.request] -= 1

    def _run_saves(self) -> None:
        while True:
            with self._lock:
                while not self._saves and not self._stop:
                    self._saving.wait()
                if self._stop:
                    return
                save = self._saves.popleft()
                head, rest = _cut(save, SAVE_BATCH)
                if rest is not None:  # the rest waits, and can still be dropped
                    self._saves.appendleft(rest)
                    self._pending[save.request] += 1
                self._now = save.request
            stats, kept = CairnStats(), 0
            try:
                kept = self._save(head, stats)
            except Exception as error:
                if not isinstance(error, cairnkv.CairnError):
                    log.exception("cairn: save")
                stats.add("save_failed_blocks", len(head.block_ids))
            with self._lock:
                self._now = None
                self._forget(head)
                if not kept:
                    self._away_until = time.monotonic() + AWAY_S
                    self._drop_all()
                self._stats.aggregate(stats)
                self._saving.notify_all()

    def _save(self, save: Save, stats: CairnStats) -> int:
        """How many blocks the store has now."""
        space, store = self.client.space(self.descs[save.space]), self.client.store()
        if space is None or store is None:
            stats.add("save_dropped_blocks", len(save.block_ids))
            return 0
        parents = {"chain": True} if not save.parent else {"parents": save.parent + save.keys[:-32]}
        batch = cairnkv.Batch(save.keys, self.planes, save.block_ids, part=self.part, engine_hashes=save.hashes,
                              **parents)
        store.put(space, batch, timeout_ms=SAVE_TIMEOUT_MS, background=True)
        kept = behind = 0
        for status in batch.statuses:
            kept += status in (cairnkv.Status.OK, cairnkv.Status.EXISTED)
            behind += status in (cairnkv.Status.BUSY, cairnkv.Status.LATE)
        stats.add("save_blocks", kept)
        stats.add("save_bytes", kept * self.block_bytes)
        if behind:
            stats.add("save_dropped_blocks", behind)
        if kept + behind < len(save.block_ids):
            stats.add("save_failed_blocks", len(save.block_ids) - kept - behind)
        return kept

    def close(self) -> None:
        with self._lock:
            self._stop = True
            self._saving.notify_all()
        for _ in range(LOADERS):
            self._loads.put(None)
        for thread in self._threads:
            thread.join(timeout=SAVE_TIMEOUT_MS / 1e3)
        self.client.close()


def _cut(save: Save, blocks: int) -> tuple[Save, Optional[Save]]:
    if len(save.block_ids) <= blocks:
        return save, None
    at = blocks * 32
    head = Save(save.request, save.space, save.keys[:at], save.parent, save.hashes[:blocks], save.block_ids[:blocks])
    rest = Save(save.request, save.space, save.keys[at:], save.keys[at - 32:at], save.hashes[blocks:],
                save.block_ids[blocks:])
    return head, rest
