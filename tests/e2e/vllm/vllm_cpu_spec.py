# SPDX-License-Identifier: Apache-2.0
"""Test aid: lets vLLM's native KV offloading run on the CPU backend, so that a SecondaryTierManager can be proven
end to end without a GPU. Not part of the product.

vLLM 0.32 builds everything of OffloadingConnector on the CPU platform except the worker that copies between "GPU" and
the primary tier: CPUOffloadingSpec.get_worker refuses any platform but CUDA and XPU, and its copy code needs streams.
A spec may come from outside the tree, so this one keeps the stock tiering spec and swaps that one worker for memcpy.

    --kv-transfer-config '{"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config":
        {"spec_name": "CpuTieringSpec", "spec_module_path": "vllm_cpu_spec", "cpu_bytes_to_use": 1073741824,
         "secondary_tiers": [{"type": "fs", "root_dir": "DIR"}]}}'          (PYTHONPATH must hold this file)

Threads: the worker process's model thread only. Copies are done inside submit_*, so a job is finished when it returns.
"""
import time

import torch
from vllm.v1.kv_offload.base import OffloadingWorker, TransferResult
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec


class MemcpyWorker(OffloadingWorker):
    def __init__(self, kv_caches, blocks_per_chunk, region):
        self.region, self.per_chunk, self.finished = region, blocks_per_chunk, []
        self.groups = [[ref.tensor_idx for ref in refs] for refs in kv_caches.group_data_refs]
        self.pages = []     # (engine rows, primary rows): one row per block / per chunk, int8
        for t in kv_caches.tensors:
            engine = t.tensor.view(torch.int8).view(-1, t.page_size_bytes)
            self.pages.append((engine, region.create_next_worker_view(t.page_size_bytes * blocks_per_chunk)))

    def _copy(self, job_id, gpu, primary, to_primary):
        start, moved, at_block, at_chunk = time.perf_counter(), 0, 0, 0
        for tensors, count, first in zip(self.groups, gpu.group_sizes, gpu.block_indices):
            skip = first % self.per_chunk       # the first chunk of a group may begin inside
            for i in range(count):
                chunk = int(primary.block_ids[at_chunk + (skip + i) // self.per_chunk])
                block, part = int(gpu.block_ids[at_block + i]), (skip + i) % self.per_chunk
                for t in tensors:
                    engine, store = self.pages[t]
                    size = engine.shape[1]
                    there = store[chunk, part * size:(part + 1) * size]
                    (there.copy_(engine[block]) if to_primary else engine[block].copy_(there))
                    moved += size
            at_block += count
            at_chunk += -(-(skip + count) // self.per_chunk) if count else 0
        self.finished.append(TransferResult(job_id, True, moved, time.perf_counter() - start))
        return True

    def submit_store(self, job_id, src_spec, dst_spec):
        return self._copy(job_id, src_spec, dst_spec, True)

    def submit_load(self, job_id, src_spec, dst_spec, expedited=False):     # the last one is new in 0.33
        return self._copy(job_id, dst_spec, src_spec, False)

    def get_finished(self):
        out, self.finished = self.finished, []
        return out

    def wait(self, job_ids):
        pass

    def shutdown(self):
        self.pages.clear()
        self.region.cleanup()


class CpuTieringSpec(TieringOffloadingSpec):
    def get_worker(self, kv_caches):
        if self._worker is None:
            region = SharedOffloadRegion(
                engine_id=self._engine_id, num_chunks=self.num_chunks, rank=self.config.parallel.rank,
                kv_bytes_per_chunk=self.kv_bytes_per_chunk, cpu_page_size=self.cpu_page_size_per_worker)
            self._worker = MemcpyWorker(kv_caches, self.blocks_per_chunk, region)
        return self._worker
