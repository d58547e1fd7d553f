/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does the store keep what its policy says? A recorded trace is replayed through a real store, in memory alone, by the
 * calls an engine makes: match, get, put, hint. Blocks of 4 KiB stand for 512 tokens each, the store's clock is the
 * trace's, and its memory has room for exactly so many blocks. Beside it the pure replay of the same policy.
 *
 * Threads: one call at a time. Memory: 16 KiB a block, touched; the trace and its keys.
 */
#ifndef CAIRN_BENCH_POLICY_REAL_H
#define CAIRN_BENCH_POLICY_REAL_H

#include <stdint.h>

struct policy_real_options {
	const char *trace;     /* a file as plan/trace.h describes it */
	const char *starts;    /* when its sessions begin; NULL: it has none */
	uint32_t blocks;       /* room in blocks of 512 tokens, 1,024 at least */
	uint32_t hint_percent; /* hints are right for so many requests in a hundred; 0: no hints */
	uint32_t read_every;   /* read the hits of one request in so many, and check their bytes; 0: of every one. Others
	                          are matched only, which is what decides */
	uint64_t seed;         /* of the wrong hints */
};
struct policy_real_result {
	double real_percent, pure_percent; /* tokens hit */
	uint64_t requests, read_blocks, evicted_blocks;
	double real_s;         /* how long the real replay took, wall clock */
};
/* 0, or an error of cairn.h (the text says which): also IO where the store gave bytes that are not the block's. */
int policy_real(const struct policy_real_options *options, struct policy_real_result *ret_result);

#endif
