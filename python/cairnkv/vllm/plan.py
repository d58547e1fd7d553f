# SPDX-License-Identifier: Apache-2.0
"""What scheduler and workers tell each other, once per step, and what they count. All of it travels by pickle.

Imports no torch. Invariant: a Plan is complete for its step; a worker keeps spaces by their number, which come once.
"""
from dataclasses import dataclass, field
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorMetadata, KVConnectorWorkerMetadata
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorPromMetrics, KVConnectorStats

import cairnkv

# Counters: name -> what it says, for Prometheus. "vllm:cairn_" is put before: vLLM
# shows no others.
COUNTERS = {
    "lookups": "Requests that were looked up",
    "lookups_late": "Lookups that had no answer in time, or no store to ask: a miss",
    "lookup_tokens": "Tokens that were looked up",
    "found_tokens": "Tokens of them that the store has",
    "unworthy_tokens": "Tokens that the store has and that are computed all the same, since that is faster",
    "loads": "Loads that have ended",
    "load_bytes": "Bytes that were loaded, checked",
    "load_seconds": "Seconds of loads",
    "load_failed_blocks": "Blocks whose load failed or was late; they are computed again",
    "load_damaged_blocks": "Blocks of them that were damaged in the store",
    "load_lost_seconds": "Seconds that loads took which brought nothing",
    "save_bytes": "Bytes that were saved",
    "save_blocks": "Blocks that were saved, or were in the store already",
    "save_dropped_blocks": "Blocks that were not saved: the store is behind",
    "save_failed_blocks": "Blocks that the store did not take",
    "sessions_saved": "Sessions that were saved",
    "sessions_failed": "Sessions that could not be saved",
}


@dataclass
class Load:
    """Blocks of one request, from the store into the engine's blocks."""
    space: int
    keys: bytes
    block_ids: list[int]
    timeout_ms: int


@dataclass
class Save:
    """Blocks of one request that this step fills. `parent`: the key before the first; b"": they begin the chain."""
    request: str
    space: int
    keys: bytes
    parent: bytes
    hashes: list[bytes]
    block_ids: list[int]


@dataclass
class Plan(KVConnectorMetadata):
    spaces: dict[int, cairnkv.Desc] = field(default_factory=dict)  # those that no plan before this one had
    loads: dict[str, Load] = field(default_factory=dict)
    saves: list[Save] = field(default_factory=list)
    preempted: list[str] = field(default_factory=list)  # their blocks are about to be overwritten
    fenced: list[str] = field(default_factory=list)     # they have ended; their blocks wait for their saves
    prefill: tuple[int, int] = (0, 0)  # of a step that does nothing else: tokens, and sum of end^2 - begin^2


@dataclass
class WorkerMeta(KVConnectorWorkerMetadata):
    cost_a_s: float = 0.0
    cost_b_s: float = 0.0

    def aggregate(self, other: KVConnectorWorkerMetadata) -> KVConnectorWorkerMetadata:
        return self  # ranks compute at the same time


class CairnStats(KVConnectorStats):
    """Counts since the last step: added up, over steps and ranks."""
    data: dict[str, float]

    def reset(self) -> None:
        self.data = {}

    def add(self, name: str, value: float = 1) -> None:
        self.data[name] = self.data.get(name, 0) + value

    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats:
        for name, value in other.data.items():
            self.add(name, value)
        return self

    def reduce(self) -> dict[str, Any]:
        return {name: round(value, 3) for name, value in self.data.items()}

    def is_empty(self) -> bool:
        return not self.data

    def take(self) -> "CairnStats | None":
        """What was counted, as an object of its own; counting begins anew."""
        if not self.data:
            return None
        taken, self.data = CairnStats(data=self.data), {}
        return taken


class CairnProm(KVConnectorPromMetrics):
    def __init__(self, vllm_config: Any, metric_types: Any, labelnames: list[str], per_engine: Any) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine)
        self._counters: dict[tuple[str, int], Any] = {}
        for name, text in COUNTERS.items():
            counter = self._counter_cls(name=f"vllm:cairn_{name}", documentation=text, labelnames=labelnames)
            for engine, values in per_engine.items():
                self._counters[name, engine] = counter.labels(*values)

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        for name, value in transfer_stats_data.items():
            if (name, engine_idx) in self._counters:
                self._counters[name, engine_idx].inc(value)
