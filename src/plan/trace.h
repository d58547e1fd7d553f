/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recorded requests, read into memory: when each came, how many tokens it had, and which blocks of 512 tokens.
 *
 * Two formats, plain or gzip, told apart by what the first line holds:
 *  - one request a line, {"timestamp": ms, "input_length": tokens, "hash_ids": [..]}: an id names a block of 512 tokens
 *    and all before it; the last, partial block has an id too (Mooncake);
 *  - one session a line, {"requests": [{"t": s, "in": tokens, "hash_runs": [[first, count], ..]} ..]}: ids of 64
 *    tokens, local to the session; sub-agents nest. Eight ids in a row, from the prompt's start, make one block that
 *    commits to all before it; fewer than eight at the end make none. Sessions begin when `starts`, a CSV
 *    "session,id,start_s", says so; without it all begin at 0.
 * Requests are in order of time; of equal times in the order of the file.
 *
 * Threads: a trace is not changed once it was read. Memory: one trace, bounded by TRACE_REFS_MAX.
 * Invariant: blocks are numbered 0..nblocks - 1 in order of first use in the file.
 */
#ifndef CAIRN_PLAN_TRACE_H
#define CAIRN_PLAN_TRACE_H

#include <stddef.h>
#include <stdint.h>

enum { TRACE_BLOCK_TOKENS = 512 };
#define TRACE_REFS_MAX (256u << 20) /* blocks of all requests together */

struct trace_request {
	uint64_t time_us;  /* since the trace's start */
	uint64_t first;    /* its blocks: refs[first..first + nblocks) */
	uint32_t nblocks;
	uint32_t tokens;
	uint32_t partial;  /* 1: its last block is not full */
};

struct trace {
	struct trace_request *requests;
	uint32_t *refs;    /* block numbers */
	size_t nrequests;
	uint64_t nrefs;
	uint32_t nblocks;
	uint64_t tokens;   /* of all requests */
};

/* starts: NULL where the trace needs none. Errors: NOENT, ACCESS, IO, NOMEM; INVAL: not such a trace (the text names
 * the line); SIZE: over the limits. trace_free ends it. */
int trace_read(const char *path, const char *starts, struct trace **ret_trace);
void trace_free(struct trace *trace); /* NULL is allowed */
/* Tokens of a request that `run` leading blocks hold. */
uint32_t trace_tokens(const struct trace_request *request, uint32_t run);

#endif
