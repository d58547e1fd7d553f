# SPDX-License-Identifier: Apache-2.0
"""CairnConnector: cairn as a KV connector of vLLM (KVConnectorBase_V1), proven with vLLM 0.32.

    --kv-transfer-config '{"kv_connector": "CairnConnector", "kv_connector_module_path": "cairnkv.vllm",
        "kv_role": "kv_both", "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {"store": "/var/lib/cairn"}}'

vLLM makes one object in its scheduler and one in each worker, in processes of their own. This file only sorts the
calls to scheduler.py and worker.py, which see each other through plan.py.
"""
from typing import Any, Optional

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    KVConnectorTransferResults,
    SupportsHMA,
)
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.metrics.cache_hit_source import CacheHitSource

from .identity import Identity, Refused
from .plan import CairnProm, CairnStats
from .scheduler import Scheduler
from .worker import Worker


def _refuse_what_does_not_fit(vllm_config: Any, transfer: Any, kv_cache_config: Any) -> None:
    if transfer.kv_load_failure_policy != "recompute":
        raise Refused('cairn: a block that does not come must be computed, not fail its request: add '
                      '"kv_load_failure_policy": "recompute" to --kv-transfer-config')
    groups = kv_cache_config.kv_cache_groups
    kinds = sorted({type(group.kv_cache_spec).__name__ for group in groups})
    if len(groups) != 1 or not isinstance(groups[0].kv_cache_spec, FullAttentionSpec):
        raise Refused(f"cairn: CairnConnector keeps models of one group of full attention; this one has {len(groups)} "
                      f"({', '.join(kinds)}). Take CairnTier (docs/VLLM.md), or --disable-hybrid-kv-cache-manager "
                      "where vLLM can do without groups")
    parallel = vllm_config.parallel_config
    hash_tokens = getattr(kv_cache_config, "hash_block_size", None) or groups[0].kv_cache_spec.block_size
    if hash_tokens != groups[0].kv_cache_spec.block_size or max(
            getattr(parallel, f"{axis}_context_parallel_size", 1) for axis in ("prefill", "decode")) > 1:
        raise Refused("cairn: CairnConnector keeps blocks that have a hash of vLLM's each; with context parallelism, "
                      f"or hashes of {hash_tokens} tokens for blocks of {groups[0].kv_cache_spec.block_size}, they "
                      "have not. Take CairnTier (docs/VLLM.md)")


class CairnConnector(KVConnectorBase_V1, SupportsHMA):
    _cache_hit_source = CacheHitSource.HOST

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        _refuse_what_does_not_fit(vllm_config, self._kv_transfer_config, kv_cache_config)
        extra = self._kv_transfer_config.kv_connector_extra_config
        self._scheduler: Any = None  # one of the two, for good
        self._worker: Any = None
        if role == KVConnectorRole.SCHEDULER:
            self._scheduler = Scheduler(vllm_config, kv_cache_config, extra)
        else:
            self._worker = Worker(vllm_config, kv_cache_config, extra, Identity(vllm_config, kv_cache_config, extra))

    @property
    def requires_kv_delivery(self) -> bool:
        return False  # a save that is lost is a miss later

    # ---- scheduler ----

    def on_new_request(self, request: Any) -> None:
        self._scheduler.new_request(request)

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[Optional[int], bool]:
        return self._scheduler.matched(request, num_computed_tokens)

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        self._scheduler.allocated(request, blocks, num_external_tokens)

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        return self._scheduler.build(scheduler_output)

    def update_connector_output(self, connector_output: Any) -> None:
        self._scheduler.workers_said(connector_output)

    def request_finished_all_groups(self, request: Any,
                                    block_ids: tuple[list[int], ...]) -> tuple[bool, Optional[dict]]:
        return self._scheduler.finished(request, block_ids), None

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, Optional[dict]]:
        return self._scheduler.finished(request, (block_ids,)), None

    def reset_cache(self) -> bool:
        return self._scheduler.reset()

    # ---- worker ----

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        self._worker.register(kv_caches)

    def handle_preemptions(self, kv_connector_metadata: Any) -> None:
        self._worker.preempted(kv_connector_metadata)

    def bind_connector_metadata(self, connector_metadata: KVConnectorMetadata) -> None:
        super().bind_connector_metadata(connector_metadata)
        self._worker.begin(connector_metadata)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        self._worker.start_loads(self._get_connector_metadata())

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Loads are of whole requests, before they run."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        """Saves are of whole blocks, after the step."""

    def wait_for_save(self) -> None:
        self._worker.start_saves(self._get_connector_metadata())

    def get_finished(self, finished_req_ids: set[str]) -> tuple[Optional[set[str]], Optional[set[str]]]:
        sent, loaded = self._worker.results()
        return sent or None, loaded or None

    def get_transfer_results(self, finished_req_ids: set[str]) -> KVConnectorTransferResults:
        # Failures are told by block: with one group vLLM then computes those alone. `failed_recving` is the way for
        # several groups; told as well, it would make vLLM compute the whole request.
        sent, loaded = self._worker.results()
        return KVConnectorTransferResults(finished_sending=sent, finished_recving=loaded)

    def get_block_ids_with_load_errors(self) -> set[int]:
        return self._worker.bad_blocks()

    def build_connector_worker_meta(self) -> Any:
        return self._worker.meta()

    # ---- both ----

    def get_kv_connector_stats(self) -> Optional[CairnStats]:
        return (self._scheduler or self._worker).take_stats()

    @classmethod
    def build_kv_connector_stats(cls, data: Optional[dict[str, Any]] = None) -> CairnStats:
        return CairnStats(data=data or {})

    @classmethod
    def build_prom_metrics(cls, vllm_config: Any, metric_types: Any, labelnames: list[str],
                           per_engine_labelvalues: Any) -> CairnProm:
        return CairnProm(vllm_config, metric_types, labelnames, per_engine_labelvalues)

    def shutdown(self) -> None:
        for half in (self._scheduler, self._worker):
            if half is not None:
                half.close()
