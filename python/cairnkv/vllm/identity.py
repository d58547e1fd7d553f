# SPDX-License-Identifier: Apache-2.0
"""What decides the bytes of a block, read from vLLM's own configuration: the space of a model, and of an adapter on it.

Threads: Weights has one of its own, all else is called from the scheduler's. Imports neither torch nor vLLM at the
top, so that what is here can be tested without them.
Invariant: what is not known is never guessed. While the digest of the weights (or of an adapter) is not there, there
is no space, so everything misses and nothing is saved; it is never read from a name.
"""
import hashlib
import json
import logging
import math
import pathlib
import threading
from dataclasses import replace
from typing import Any, Mapping, Optional, Sequence

import cairnkv

log = logging.getLogger("vllm.cairn")

DTYPES = {"bfloat16": "bf16", "float16": "f16", "half": "f16", "float32": "f32", "float": "f32", "fp8": "fp8_e4m3",
          "fp8_e4m3": "fp8_e4m3", "float8_e4m3fn": "fp8_e4m3", "fp8_e5m2": "fp8_e5m2", "float8_e5m2": "fp8_e5m2"}
# Files that hold tensors, best kind first: a directory often has the same weights in two kinds, and vLLM reads one.
WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf")
# Kinds of rope whose angles do not depend on how long the context is configured to be.
ROPE_FIXED = ("default", "linear", "llama3", "yarn", "mrope", "proportional")


class Refused(ValueError):
    """A configuration that this connector can not serve rightly; the text says what to change."""


def dtype_name(dtype: Any) -> str:
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise Refused(f"cairn: KV of type {name!r} is not known; set --kv-cache-dtype to auto, bfloat16 or fp8")
    return DTYPES[name]


def hash_scheme(algorithm: str, none_hash: bytes) -> str:
    """The key scheme of vLLM's block hashes: without what the first block's parent is they say nothing."""
    return f"vllm/{algorithm}/{hashlib.sha256(none_hash).hexdigest()}"


def rope_text(config: Any, max_model_len: int) -> Optional[str]:
    """Rope settings as one line that does not depend on the order of keys; None: the model says nothing of them."""
    said: dict[str, Any] = {}
    for name in ("rope_parameters", "rope_scaling", "rope_theta", "partial_rotary_factor", "rope_local_base_freq"):
        value = getattr(config, name, None)
        if value is not None and value not in said.values():  # newer transformers say the same under two names
            said[name] = value
    if not said:
        return None
    parts = [part for part in said.values() if isinstance(part, dict)]
    kinds = {str(part.get("rope_type", part.get("type", "default"))) for part in parts}
    if not kinds.issubset(ROPE_FIXED):
        said["max_model_len"] = max_model_len
    return json.dumps(said, sort_keys=True, separators=(",", ":"), default=str)


def weight_files(model: str, revision: Optional[str] = None) -> Sequence[pathlib.Path]:
    """The files that hold the tensors of a model, which is a directory, a file, or a name of the Hugging Face cache."""
    path = pathlib.Path(model)
    if path.is_file():
        return [path]
    if not path.is_dir():
        from huggingface_hub import snapshot_download
        path = pathlib.Path(snapshot_download(model, revision=revision, local_files_only=True))
    for pattern in WEIGHTS:
        files = sorted(path.glob(pattern))
        if files:
            return files
    raise FileNotFoundError(f"no files of weights in {path}")


def adapter_scale(directory: pathlib.Path) -> Optional[str]:
    """alpha / r as decimal text, from what PEFT writes beside an adapter; None: it does not say."""
    try:
        said = json.loads((directory / "adapter_config.json").read_text())
        rank = float(said["r"])
        scale = float(said["lora_alpha"]) / (math.sqrt(rank) if said.get("use_rslora") else rank)
    except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError):
        return None
    return f"{scale:.12f}"


class Digests:
    """Digests of files, computed once each on a thread; None until one is known."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, Optional[tuple[bytes, Optional[str]]]] = {}

    def of_model(self, model: str, revision: Optional[str]) -> Optional[bytes]:
        found = self._get(f"model {model}", lambda: (cairnkv.weights_digest(weight_files(model, revision)), None))
        return found[0] if found else None

    def of_adapter(self, path: str) -> Optional[tuple[bytes, Optional[str]]]:
        def work() -> tuple[bytes, Optional[str]]:
            directory = pathlib.Path(path)
            files = list(weight_files(path))
            config = directory / "adapter_config.json"
            return cairnkv.weights_digest(files + ([config] if config.is_file() else [])), adapter_scale(directory)
        return self._get(f"adapter {path}", work)

    def _get(self, name: str, work: Any) -> Optional[tuple[bytes, Optional[str]]]:
        with self._lock:
            if name in self._known:
                return self._known[name]
            self._known[name] = None
        threading.Thread(target=self._run, args=(name, work), name="cairn-digest", daemon=True).start()
        return None

    def _run(self, name: str, work: Any) -> None:
        try:
            found = work()
        except Exception as error:  # whatever it is, the engine goes on without a store
            log.error("cairn: the digest of %s can not be had, so nothing is loaded or saved: %s", name, error)
            return
        with self._lock:
            self._known[name] = found

    def forget_adapter(self, path: str) -> None:
        with self._lock:
            if self._known.get(f"adapter {path}"):
                del self._known[f"adapter {path}"]


class Identity:
    """The space of what an engine computes. Made once from vLLM's configuration; desc() gives it, when it is known."""

    def __init__(self, vllm_config: Any, kv_cache_config: Any, extra: Mapping[str, Any]) -> None:
        model, cache = vllm_config.model_config, vllm_config.cache_config
        self.model, self.revision = model.model, getattr(model, "revision", None)
        self.algorithm = cache.prefix_caching_hash_algo
        self.digests = Digests()
        self.generation: Optional[bytes] = None
        self.groups = kv_cache_config.kv_cache_groups
        if getattr(cache, "calculate_kv_scales", False):
            raise Refused("cairn: scales of the KV that are computed at run time (calculate_kv_scales) differ from run "
                          "to run; take those of the checkpoint")
        dtype = model.dtype if cache.cache_dtype == "auto" else cache.cache_dtype
        self.world = vllm_config.parallel_config.world_size
        self.replicas = max(1, getattr(kv_cache_config, "kv_tp_replicas", 1))
        self.base = cairnkv.Desc(
            tenant=extra.get("tenant"),
            model=",".join(getattr(model.hf_config, "architectures", None) or []) or None,
            kv_dtype=dtype_name(dtype),
            layers=sum(len(group.layer_names) for group in self.groups),
            kv_heads=model.get_total_num_kv_heads(),
            head_size=model.get_head_size(),
            layout=kv_cache_config.kv_cache_layout or getattr(cache, "kv_cache_layout", None),
            rope=rope_text(model.hf_text_config, model.max_model_len),
            isa=self._isa(vllm_config, dtype),
            groups=[self._group(group, None if len(self.groups) == 1 else f"group{number}",
                                len(self.groups) == vllm_config.parallel_config.pipeline_parallel_size == 1)
                    for number, group in enumerate(self.groups)],
            parts=self._parts(),
            fields=self._fields(vllm_config),
        )
        self.digests.of_model(self.model, self.revision)

    def _isa(self, vllm_config: Any, dtype: Any) -> Optional[str]:
        """Attention on CPUs packs the inside of a block by the instruction set: same size and type, other bytes."""
        from vllm.platforms import current_platform
        if not current_platform.is_cpu():
            return None
        from vllm.v1.attention.backends.cpu_attn import _get_attn_isa
        spec = self.groups[0].kv_cache_spec
        return _get_attn_isa(vllm_config.model_config.dtype, spec.block_size, spec.head_size,
                             vllm_config.cache_config.cache_dtype)

    @staticmethod
    def _group(group: Any, name: Optional[str], alone: bool) -> cairnkv.Group:
        spec = group.kv_cache_spec
        kind = type(spec).__name__
        window = spec.sliding_window if kind.startswith("SlidingWindow") else 0
        rule = cairnkv.Rule.TRAILING if window else cairnkv.Rule.SNAPSHOT if "Mamba" in kind else cairnkv.Rule.ALL
        # Of several groups, or kinds of layers in one, it is not simply said; there the engine's memory says it.
        plain = alone and not kind.startswith("UniformType")
        return cairnkv.Group(block_tokens=spec.block_size, name=name, rule=rule, trailing_tokens=window,
                             block_bytes=spec.page_size_bytes * len(group.layer_names) if plain else 0)

    def _parts(self) -> Sequence[cairnkv.Part]:
        """One part per rank whose bytes are its own; ranks that hold the same (MLA) share one."""
        ranks = self.world // self.replicas
        return [] if ranks == 1 else [cairnkv.Part(f"rank{rank}") for rank in range(ranks)]

    def _fields(self, vllm_config: Any) -> dict[str, str]:
        model, parallel = vllm_config.model_config, vllm_config.parallel_config
        fields = {"vllm_dtype": str(model.dtype).removeprefix("torch."),
                  "vllm_spec": ",".join(type(group.kv_cache_spec).__name__ for group in self.groups)}
        if getattr(model, "quantization", None):
            fields["vllm_quantization"] = str(model.quantization)
        lookahead = getattr(vllm_config.cache_config, "num_hash_lookahead_tokens", 0)
        if lookahead:  # vLLM 0.33: the hash then covers tokens after the block as well
            fields["vllm_hash_lookahead"] = str(lookahead)
        for axis in ("pipeline", "prefill_context", "decode_context"):
            size = getattr(parallel, f"{axis}_parallel_size", 1)
            if size > 1:
                fields[f"vllm_{axis}"] = str(size)
        return fields

    def chunked(self, blocks: int) -> None:
        """A block of ours is that many of vLLM's, one after another in its own cache: other bytes, so another space."""
        if blocks > 1:
            groups = [replace(group, block_tokens=group.block_tokens * blocks, block_bytes=0)
                      for group in self.base.groups]
            self.base = replace(self.base, groups=groups, fields={**self.base.fields, "vllm_chunk": str(blocks)})

    def part(self, rank: int) -> int:
        return rank // self.replicas

    def saves(self, rank: int) -> bool:
        return rank % self.replicas == 0

    def bump(self, generation: bytes) -> None:
        """Weights were exchanged in place: what was saved before is another model's."""
        self.generation = generation

    def desc(self, lora: Any = None) -> Optional[cairnkv.Desc]:
        """The space of a request, or None while something of it is not known."""
        from vllm.v1.core import kv_cache_utils
        none_hash = getattr(kv_cache_utils, "NONE_HASH", None)
        weights = self.digests.of_model(self.model, self.revision)
        if none_hash is None or weights is None:
            return None
        desc = replace(self.base, weights=weights, scheme=hash_scheme(self.algorithm, bytes(none_hash)),
                       generation=self.generation)
        if lora is None:
            return desc
        found = self.digests.of_adapter(lora.lora_path)
        if found is None:
            return None
        return replace(desc, adapter=found[0], adapter_scale=found[1])
