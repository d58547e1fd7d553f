# SPDX-License-Identifier: Apache-2.0
"""CairnTier: a secondary tier below vLLM's tiered offloading (SecondaryTierManager), proven with vLLM 0.32.

vLLM moves blocks between the accelerator and its primary tier in host memory; this moves them between that and cairn,
straight to and from the primary tier's rows, by C. Imports no torch.
Threads: vLLM's scheduler thread calls the methods, and from 0.33 on perhaps another one, at one time; they never wait
but in drain_jobs and shutdown. One thread of ours asks what is there, LOADERS load, one saves and does what follows a
request's end, in order. What they share is guarded by `_lock`.
Invariants: each job is answered once. What does not come is not among `successful_keys`, so that it is a miss in vLLM
as well.
"""
import logging
import os
import queue
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Iterable, Optional

import numpy
from vllm.v1.kv_offload.base import LookupResult, Medium, OffloadingCounterMetadata, RequestOffloadingContext
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager, TransferJob

import cairnkv

from .client import OPTIONS, Client, Watch, run_jobs
from .hints import HOLD_MS, LOOKUP_MS, SESSION_MS, Hints
from .identity import Identity, Refused

log = logging.getLogger("vllm.cairn")

LOADERS = 2
LOAD_TIMEOUT_MS, SAVE_TIMEOUT_MS = 30_000, 10_000
SAVES_WAITING = 64  # jobs; then the store is behind, and what comes is dropped


@dataclass
class Configured:
    """What CairnTierConnector hands to its tiers while it constructs them, and they to it."""
    vllm_config: Any
    kv_cache_config: Any
    tiers: list["CairnTier"] = field(default_factory=list)


configured: Optional[Configured] = None

COUNTERS = {
    "vllm:cairn_tier_load_bytes": "Bytes that were loaded, checked",
    "vllm:cairn_tier_load_failed_blocks": "Blocks whose load failed: damaged, gone, or late",
    "vllm:cairn_tier_save_bytes": "Bytes that were saved",
    "vllm:cairn_tier_save_dropped_blocks": "Blocks that were not saved: the store is behind, or away",
    "vllm:cairn_tier_lookups_late": "Lookups that had no answer in time: a miss",
}


@dataclass
class Asked:
    """What one request asked for. `found`: None until it is answered; then the keys that are there."""
    context: Any
    hints: Hints
    keys: list[bytes] = field(default_factory=list)        # not asked yet, in order
    since: dict[bytes, float] = field(default_factory=dict)  # asked, not answered
    found: dict[bytes, bool] = field(default_factory=dict)
    match: list[Any] = field(default_factory=list)         # lookup thread's
    tainted: bool = False  # weights were exchanged while it ran: its blocks are of neither


class CairnTier(SecondaryTierManager):
    medium = Medium.STORAGE

    def __init__(self, offloading_spec: Any, primary_kv_view: memoryview, tier_type: str,
                 backpressure_detector: Any = None, **own: Any) -> None:
        super().__init__(offloading_spec, primary_kv_view, tier_type, backpressure_detector)
        if configured is None:
            raise Refused('cairn: what made the bytes of a block (weights, rope, quantisation) is not told to a tier; '
                          'name "kv_connector": "CairnTierConnector", "kv_connector_module_path": "cairnkv.vllm" '
                          'instead of "OffloadingConnector"')
        vllm_config, kv_cache_config = configured.vllm_config, configured.kv_cache_config
        if vllm_config.lora_config is not None:
            raise Refused("cairn: a tier is not told which adapter a request uses; take CairnConnector, or leave "
                          "--enable-lora out")
        own.setdefault("store", offloading_spec.extra_config.get("store"))
        for name in OPTIONS + ("tenant",):
            if name in offloading_spec.extra_config:
                own.setdefault(name, offloading_spec.extra_config[name])
        config = offloading_spec.config
        self.identity = Identity(vllm_config, kv_cache_config, own)
        self.identity.chunked(config.cache.blocks_per_chunk)
        self.client = Client(own)
        self.chunk_tokens = [group.tokens_per_block * config.cache.blocks_per_chunk for group in config.groups]
        self.lookup_s = float(own.get("lookup_ms", LOOKUP_MS)) / 1e3
        self.load_timeout_ms = int(own.get("load_timeout_ms", LOAD_TIMEOUT_MS))
        self.planes = self._planes(primary_kv_view, config)
        self._desc: Optional[cairnkv.Desc] = None
        self._derives: dict[int, cairnkv.Derive] = {}
        self._requests: dict[str, Asked] = {}
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._loading: dict[int, list[bytes]] = {}
        self._jobs = 0
        self._finished: list[JobResult] = []
        self._counts: dict[str, float] = {}
        self._watch = Watch()
        self._lookups: queue.SimpleQueue = queue.SimpleQueue()
        self._loads: queue.SimpleQueue = queue.SimpleQueue()
        self._saves: queue.SimpleQueue = queue.SimpleQueue()
        queues = [("lookup", self._lookups), ("save", self._saves)] + [("load", self._loads)] * LOADERS
        self._threads = [threading.Thread(target=run_jobs, args=(work, f"cairn-tier-{name}"),
                                          name=f"cairn-tier-{name}", daemon=True)
                         for name, work in queues]
        self._queues = [work for _, work in queues]
        for thread in self._threads:
            thread.start()
        configured.tiers.append(self)

    def _planes(self, view: memoryview, config: Any) -> list[cairnkv.Planes]:
        """One for each part: a row of the primary tier holds the blocks of all ranks, rank after rank."""
        rows = numpy.asarray(view)
        address, stride = rows.ctypes.data, rows.strides[0]
        parts = max(1, len(self.identity.base.parts))
        length = config.worker_kv_bytes_per_block * config.cache.blocks_per_chunk
        step = stride // parts
        if not 0 < length <= step:
            length = step
        return [cairnkv.Planes([(address + part * step, stride, length)], owner=view) for part in range(parts)]

    # ---- threads ----

    def _count(self, name: str, value: float) -> None:
        if value:
            with self._lock:
                self._counts[f"vllm:cairn_{name}"] = self._counts.get(f"vllm:cairn_{name}", 0) + value

    def _key(self, key: bytes) -> tuple[bytes, int]:
        """Ours for vLLM's, which is its block hash and the group, big endian; b"": the space is not known yet.
        Scheduler thread."""
        group = int.from_bytes(key[-4:], "big")
        if self._desc is None:
            self._desc = self.identity.desc()
        if self._desc is None:
            return b"", group
        if group not in self._derives:
            self._derives[group] = self._desc.derive(group)
        return self._derives[group].hash(bytes(key[:-4])), group

    def _there(self) -> Optional[tuple[cairnkv.Store, cairnkv.Space]]:
        store, space = self.client.store(), self.client.space(self._desc) if self._desc is not None else None
        return (store, space) if store is not None and space is not None else None

    # ---- lookups ----

    def on_new_request(self, req_context: Any) -> RequestOffloadingContext:
        self._requests[req_context.req_id] = Asked(req_context, Hints.read(req_context.kv_transfer_params))
        return RequestOffloadingContext()

    def lookup(self, key: bytes, req_context: Any) -> LookupResult:
        asked = self._requests.get(req_context.req_id)
        if asked is None:
            return LookupResult.MISS
        found = asked.found.get(key)
        if found is not None:
            return LookupResult.HIT if found else LookupResult.MISS
        since = asked.since.get(key)
        if since is None:
            if self.client.store() is None or self._watch.stuck_s() > self.lookup_s:
                self._count("tier_lookups_late", 1)
                asked.found[key] = False
                return LookupResult.MISS
            asked.since[key] = time.monotonic()
            asked.keys.append(bytes(key))
        elif time.monotonic() - since > self.lookup_s:
            self._count("tier_lookups_late", 1)
            asked.found[key] = False
            return LookupResult.MISS
        return LookupResult.RETRY

    def on_schedule_end(self, context: Any) -> None:
        for asked in self._requests.values():
            if asked.keys:
                keys, asked.keys = asked.keys, []
                ours = [self._key(key) for key in keys]
                self._lookups.put(lambda asked=asked, keys=keys, ours=ours: self._look(asked, keys, ours))

    def _look(self, asked: Asked, keys: list[bytes], ours: list[tuple[bytes, int]]) -> None:
        there: list[bool] = [False] * len(keys)
        try:
            with self._watch:
                at = self._there()
                if at is not None and ours[0][0]:
                    there = self._ask(asked, *at, ours)
        finally:  # an answer in any case
            for key, is_there in zip(keys, there):
                asked.found.setdefault(key, is_there)

    def _ask(self, asked: Asked, store: cairnkv.Store, space: cairnkv.Space,
             ours: list[tuple[bytes, int]]) -> list[bool]:
        if len(self.identity.groups) == 1:  # they come in order: one question, and a hold on what it found
            match = store.match(space, b"".join(key for key, _ in ours), timeout_ms=HOLD_MS)
            asked.match.append(match)
            blocks = match.worth_tokens // self.chunk_tokens[0]
            return [n < blocks for n in range(len(ours))]
        return [store.explain(space, key).reason == cairnkv.Reason.PRESENT for key, _ in ours]

    # ---- jobs ----

    def submit_load(self, job_metadata: TransferJob) -> None:
        self._loading[job_metadata.job_id] = list(job_metadata.keys)
        self._begin(self._loads, job_metadata, self._load)

    def submit_store(self, job_metadata: TransferJob) -> None:
        asked = self._requests.get(job_metadata.req_context.req_id)
        if self._saves.qsize() >= SAVES_WAITING or asked is not None and asked.tainted:
            self._count("tier_save_dropped_blocks", len(job_metadata.keys))
            with self._lock:
                self._finished.append(JobResult(job_metadata.job_id, False))
            return
        self._begin(self._saves, job_metadata, self._save)

    def _begin(self, work: queue.SimpleQueue, job: TransferJob, do: Callable) -> None:
        keys = list(job.keys)
        ours = [self._key(key) for key in keys]
        parents = [b""] * len(keys) if job.is_promotion else self._parents(job, keys)
        with self._lock:
            self._jobs += 1
        work.put(lambda: self._do(job.job_id, keys, lambda: do(keys, ours, parents, job.chunk_ids.tolist())))

    def _parents(self, job: TransferJob, keys: list[bytes]) -> list[bytes]:
        """The block before each in its chain, where it is known: what is evicted of a chain goes from its end."""
        ends = _ends(job.req_context)
        at = {(key[-4:], end): key for key, end in ends.items()}
        parents: list[bytes] = []
        for key in keys:
            end, group = ends.get(key), int.from_bytes(key[-4:], "big")
            before = at.get((key[-4:], end - self.chunk_tokens[group])) if end is not None else None
            parents.append(self._key(before)[0] if before is not None else b"")
        return parents

    def _do(self, job_id: int, keys: list[bytes], do: Callable[[], tuple[list[bool], int]]) -> None:
        began, well, moved = time.monotonic(), [False] * len(keys), 0
        try:
            well, moved = do()
        finally:
            good = tuple(key for key, is_well in zip(keys, well) if is_well)
            with self._lock:
                took = time.monotonic() - began
                self._finished.append(JobResult(job_id, all(well), good or None, took, moved or None))
                self._jobs -= 1
                self._idle.notify_all()

    def _load(self, keys: list[bytes], ours: list, parents: list, rows: list[int]) -> tuple[list[bool], int]:
        well, moved, at = [True] * len(keys), 0, self._there()
        until = time.monotonic() + self.load_timeout_ms / 1e3
        if at is None or not ours[0][0]:
            return [False] * len(keys), 0
        for group in sorted({group for _, group in ours}):
            which = [n for n, (_, its) in enumerate(ours) if its == group]
            for part, planes in enumerate(self.planes):
                batch = cairnkv.Batch([ours[n][0] for n in which], planes, [rows[n] for n in which], group=group,
                                      part=part)
                try:
                    at[0].get(at[1], batch, timeout_ms=max(1, int((until - time.monotonic()) * 1e3)))
                except cairnkv.CairnError as error:  # then no status says anything
                    log.debug("cairn: load: %s", error)
                    for n in which:
                        well[n] = False
                    continue
                for n, status, i in zip(which, batch.statuses, range(len(which))):
                    well[n] &= status == cairnkv.Status.OK
                    moved += batch.bytes(i) if status == cairnkv.Status.OK else 0
        self._count("tier_load_bytes", moved)
        self._count("tier_load_failed_blocks", well.count(False))
        if not all(well):
            log.warning("cairn: %d of %d blocks did not come, they are computed", well.count(False), len(well))
        return well, moved

    def _save(self, keys: list[bytes], ours: list, parents: list, rows: list[int]) -> tuple[list[bool], int]:
        well, moved, at = [False] * len(keys), 0, self._there()
        if at is not None and ours[0][0]:
            well = [True] * len(keys)
            for n, (key, group) in enumerate(ours):
                for part, planes in enumerate(self.planes):
                    batch = cairnkv.Batch([key], planes, [rows[n]], group=group, part=part,
                                          parents=[parents[n]] if parents[n] else None, engine_hashes=[keys[n][:-4]])
                    try:
                        at[0].put(at[1], batch, timeout_ms=SAVE_TIMEOUT_MS, background=True)
                    except cairnkv.CairnError as error:
                        log.debug("cairn: save: %s", error)
                        well[n] = False
                        continue
                    well[n] &= batch.ok == 1
                    moved += batch.bytes(0) if batch.ok else 0
        self._count("tier_save_bytes", moved)
        self._count("tier_save_dropped_blocks", well.count(False))
        return well, moved

    def get_finished_jobs(self) -> Iterable[JobResult]:
        with self._lock:
            finished, self._finished = self._finished, []
        for result in finished:
            keys = self._loading.pop(result.job_id, ())
            gone = set(keys).difference(result.successful_keys or ()) if not result.success else ()
            for asked in self._requests.values() if gone else ():  # or it would be asked for, and fail, for ever
                asked.found.update((key, False) for key in gone if key in asked.found)
        return finished

    def drain_jobs(self) -> None:
        with self._lock:
            while self._jobs:
                self._idle.wait()

    # ---- a request ends ----

    def on_request_finished(self, req_context: Any) -> None:
        asked = self._requests.pop(req_context.req_id, None)
        if asked is None:
            return
        self._lookups.put(lambda: [match.release() for match in asked.match])
        keys = [key for key, _ in sorted(_ends(req_context).items(), key=lambda item: item[1])]
        if keys and len(self.identity.groups) == 1 and not asked.tainted:
            ours = [self._key(key)[0] for key in keys]
            if ours[0]:
                self._saves.put(lambda: self._after(asked.hints, ours))  # after the saves before it

    def _after(self, hints: Hints, chain: list[bytes]) -> None:
        at = self._there()
        if at is None:
            return
        store, space = at
        with store.match(space, chain) as match:
            chain = chain[:match.tokens // self.chunk_tokens[0]]
        if not chain:
            return
        if hints.session is not None:
            try:
                store.save(space, hints.session, chain, owner=hints.owner, tokens=len(chain) * self.chunk_tokens[0],
                           ttl_s=hints.ttl_s, pin=hints.pin, timeout_ms=SESSION_MS)
            except cairnkv.CairnError as error:
                log.warning("cairn: session %r could not be saved: %s", hints.session, error)
            if hints.close:
                store.session_close(hints.session, owner=hints.owner)
        store.hint(space, chain, cairnkv.Hint.CLOSE if hints.close else cairnkv.Hint.PAUSE)

    # ---- the rest ----

    def reset(self) -> None:
        """Weights were exchanged in place: what is in the store belongs to those before."""
        self.identity.bump(os.urandom(16))
        self._desc, self._derives = None, {}
        for asked in self._requests.values():
            asked.tainted = True
            asked.found = {key: False for key in asked.found}

    @classmethod
    def build_metric_definitions(cls, extra_config: dict[str, Any]) -> dict[str, Any]:
        return {name: OffloadingCounterMetadata(documentation=text) for name, text in COUNTERS.items()}

    def get_stats(self) -> Any:
        from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import OffloadingConnectorStats
        with self._lock:
            counts, self._counts = self._counts, {}
        if not counts:
            return None
        stats = OffloadingConnectorStats()
        for name, value in counts.items():
            stats.increase_counter(name, value)
        return stats

    def shutdown(self) -> None:
        queues, self._queues = self._queues, []
        for work in queues:
            work.put(None)
        for thread in self._threads if queues else ():
            thread.join(timeout=SAVE_TIMEOUT_MS / 1e3)
        if queues:
            self.client.close()


def _ends(context: Any) -> dict[bytes, int]:
    """vLLM's keys of a request, those that it found itself included, each with the token at which its block ends."""
    return getattr(context, "_offload_key_positions", {})
