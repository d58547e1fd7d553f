# SPDX-License-Identifier: Apache-2.0
"""build_ffi.py HEADER OUT.c - writes the C source of the extension cairnkv._cairn from the public header."""
import os
import sys

from cffi import FFI

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from header import cdef  # noqa: E402

HELPERS = """
struct cairnkv_life {
    cairn *store;
    long refs;
    long pid;
};
enum { CAIRNKV_LEASE, CAIRNKV_MATCH, CAIRNKV_SESSION, CAIRNKV_QUEUE, CAIRNKV_REGION };
struct cairnkv_cell {
    struct cairnkv_life *life;
    void *pointer;
    int kind;
};
void cairnkv_life_drop(struct cairnkv_life *life);
struct cairnkv_life *cairnkv_life_new(void);
int cairnkv_life_open(struct cairnkv_life *life, const char *place, const struct cairn_options *options);
int cairnkv_life_close(struct cairnkv_life *life);
void cairnkv_cell_open(struct cairnkv_cell *cell, struct cairnkv_life *life, int kind);
void cairnkv_cell_close(struct cairnkv_cell *cell);
struct cairnkv_plane {
    uint64_t address, stride, length;
};
void cairnkv_fill(struct cairn_item *items, struct cairn_buf *bufs, const cairn_key *keys, const cairn_key *parents,
                  size_t first, const uint64_t *indices, size_t n, const struct cairnkv_plane *planes, uint32_t nplanes,
                  uint16_t group, uint16_t part, uint32_t flags);
void cairnkv_fill_hashes(struct cairn_item *items, size_t n, const uint8_t *hashes, uint32_t length);
int cairnkv_derive_hashes(cairn_derive *derive, const uint8_t *hashes, size_t length, size_t n, cairn_key *keys);
void cairnkv_submit(cairn_queue *queue, int put, const cairn_space *space, struct cairn_item *items, size_t n,
                    const struct cairn_call *call, uint64_t tag, int *ret_status);
void cairnkv_wait(cairn_queue *queue, struct cairn_completion *done, size_t max, int timeout_ms, long *ret_count);
void cairnkv_statuses(const struct cairn_item *items, size_t n, int32_t *ret_statuses);
"""

CALLBACKS = """
extern "Python" int cairnkv_progress(void *arg, uint64_t done, uint64_t all);
extern "Python" int cairnkv_fence(void *arg);
extern "Python" int cairnkv_each_session(void *arg, const struct cairn_session_info *info);
extern "Python" int cairnkv_each_space(void *arg, const struct cairn_space_info *info);
extern "Python" int cairnkv_each_part(void *arg, const struct cairn_part_info *info);
extern "Python" int cairnkv_each_tenant(void *arg, const struct cairn_tenant_stat *stat);
extern "Python" int cairnkv_each_client(void *arg, const struct cairn_client_info *info);
extern "Python" int cairnkv_each_present(void *arg, const struct cairn_present *present);
extern "Python" int cairnkv_each_token(void *arg, const struct cairn_token_info *info);
"""


def main() -> None:
    header, out = sys.argv[1:]
    with open(header, encoding="utf-8") as file:
        text = file.read()
    ffi = FFI()
    ffi.cdef(cdef(text) + HELPERS + CALLBACKS)
    ffi.set_source("cairnkv._cairn", '#include "cairn/cairn.h"\n#include "batch.h"\n')
    ffi.emit_c_code(out)


main()
