# SPDX-License-Identifier: Apache-2.0
"""cairn under vLLM: two faces over one store. docs/VLLM.md says when to take which.

    CairnConnector      a KV connector of its own: vLLM's blocks straight to and from cairn
    CairnTierConnector  vLLM's own tiered offloading, with CairnTier as a tier below it

vLLM loads them by name from this module; nothing of vLLM or torch is imported before one of them is asked for.
"""
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .connector import CairnConnector
    from .tier import CairnTier
    from .tier_connector import CairnTierConnector

__all__ = ["CairnConnector", "CairnTier", "CairnTierConnector"]


def __getattr__(name: str) -> Any:
    if name == "CairnConnector":
        from .connector import CairnConnector
        return CairnConnector
    if name == "CairnTier":
        from .tier import CairnTier
        return CairnTier
    if name == "CairnTierConnector":
        from .tier_connector import CairnTierConnector
        return CairnTierConnector
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
