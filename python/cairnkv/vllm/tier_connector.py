# SPDX-License-Identifier: Apache-2.0
"""CairnTierConnector: vLLM's own tiered offloading with cairn below it, by one flag with one path.

    --kv-transfer-config '{"kv_connector": "CairnTierConnector", "kv_connector_module_path": "cairnkv.vllm",
        "kv_role": "kv_both", "kv_connector_extra_config": {"store": "/var/lib/cairn", "cpu_bytes_to_use": 8589934592}}'

It is vLLM's OffloadingConnector, and changes nothing of it. A tier is not told by which weights, rope, quantisation
or model's type its bytes were made; this hands it vLLM's configuration while it is constructed. Without that
CairnTier refuses.
"""
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector import OffloadingConnector

from . import tier


class CairnTierConnector(OffloadingConnector):
    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        extra = vllm_config.kv_transfer_config.kv_connector_extra_config
        _fill_in(extra)
        tier.configured = handed = tier.Configured(vllm_config, kv_cache_config)
        self._tiers = handed.tiers
        try:
            super().__init__(vllm_config, role, kv_cache_config)
        finally:
            tier.configured = None

    def reset_cache(self) -> Any:
        """vLLM calls it when weights were exchanged in place."""
        done = super().reset_cache()
        for its in self._tiers:
            its.reset()
        return done

    @classmethod
    def build_prom_metrics(cls, vllm_config: Any, *others: Any) -> Any:
        _fill_in(vllm_config.kv_transfer_config.kv_connector_extra_config)
        return super().build_prom_metrics(vllm_config, *others)


def _fill_in(extra: dict[str, Any]) -> None:
    """What the flag leaves out: the tiering spec, and CairnTier as its one tier, at the store that was named."""
    extra.setdefault("spec_name", "TieringOffloadingSpec")
    if "secondary_tiers" not in extra:
        extra["secondary_tiers"] = [{"type": "CairnTier", "module_path": "cairnkv.vllm", "store": extra.get("store")}]
    # vLLM leaves the answer out, which is part of the next turn's prompt.
    extra.setdefault("offload_prompt_only", False)
