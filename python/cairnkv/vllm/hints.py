# SPDX-License-Identifier: Apache-2.0
"""What a request says of itself, kv_transfer_params {"cairn": {...}}, and the times that both faces wait. Pure."""
import logging
from dataclasses import dataclass
from typing import Any, Optional

log = logging.getLogger("vllm.cairn")

LOOKUP_MS = 500     # then a lookup is a miss
HOLD_MS = 30_000    # a match keeps its blocks so long at most
SESSION_MS = 30_000


@dataclass
class Hints:
    session: Optional[str] = None
    owner: Optional[str] = None
    ttl_s: int = 0
    pin: bool = False
    close: bool = False

    @staticmethod
    def read(params: Any) -> "Hints":
        said = params.get("cairn") if isinstance(params, dict) else None
        if not isinstance(said, dict):
            return Hints()
        session, owner, ttl_s = said.get("session"), said.get("owner"), said.get("ttl_s", 0)
        well = (session is None or _is_name(session)) and (owner is None or owner == "" or _is_name(owner)) and \
            isinstance(ttl_s, (int, float)) and 0 <= ttl_s < 2 ** 40
        if not well:
            log.warning("cairn: a request's kv_transfer_params.cairn is not understood and left aside: %.200r", said)
            return Hints()
        return Hints(session, owner, int(ttl_s), bool(said.get("pin")), bool(said.get("close")))


def _is_name(name: Any) -> bool:
    """As cairn takes them: 1 to 255 bytes of UTF-8, none of them 0. JSON can say strings that are none."""
    try:
        return isinstance(name, str) and 0 < len(name.encode()) < 256 and "\0" not in name
    except UnicodeError:
        return False
