/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trace through a real store. See policy_real.h. It sees the store's inside for one thing: a clock of its own.
 */
#include "bench/policy_real.h"

#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/random.h"
#include "plan/replay.h"
#include "store/store.h"

enum { BLOCK_BYTES = 4096, SLOT_BYTES = 16384 }; /* memory has a slot for each 16 KiB of its budget: so many parts */
#define START_NS 1000000000000ull
#define READ_NS 10u /* a look at the clock takes time: whoever waits for a deadline gets there */

struct work {
	const struct policy_real_options *options;
	const struct trace *trace;
	struct clock clock;
	struct io_maker maker;
	uint64_t now_ns;
	cairn *store;
	cairn_space *space;
	cairn_key *keys;           /* by block */
	struct cairn_item *items;  /* as many as the longest request has blocks */
	struct cairn_buf *bufs;
	cairn_key *chain;
	uint8_t *bytes, *last;
	struct policy_real_result result;
	uint64_t hit_tokens;
};

static uint64_t mono_ns(void *arg) { return ((struct work *)arg)->now_ns += READ_NS; }
static uint64_t wall_s(void *arg) { return 1700000000 + ((struct work *)arg)->now_ns / 1000000000; }

static int work_start(struct work *work)
{
	static const cairn_digest weights = {{1}};
	struct cairn_options options = {.size = sizeof(options), .flags = CAIRN_OPEN_NO_FLASH};
	struct cairn_space_desc desc = {.size = sizeof(desc), .model = "policy", .weights = &weights, .kv_dtype = "none",
	                                .block_tokens = TRACE_BLOCK_TOKENS};
	const struct trace *trace = work->trace;
	size_t longest = 1;
	for (size_t r = 0; r < trace->nrequests; r++)
		longest = trace->requests[r].nblocks > longest ? trace->requests[r].nblocks : longest;
	work->keys = mem_array((size_t)trace->nblocks + 1, sizeof(*work->keys));
	work->items = mem_array(longest, sizeof(*work->items));
	work->bufs = mem_array(longest, sizeof(*work->bufs));
	work->chain = mem_array(longest, sizeof(*work->chain));
	work->bytes = mem_array(longest, BLOCK_BYTES);
	work->last = mem_alloc(trace->nrefs + 1);
	if (!work->keys || !work->items || !work->bufs || !work->chain || !work->bytes || !work->last)
		return err_set(CAIRN_E_NOMEM, "no memory for a replay");
	struct random random;
	random_init(&random, 7);
	for (uint32_t i = 0; i < trace->nblocks; i++)
		for (int word = 0; word < 4; word++) {
			uint64_t value = random_next(&random);
			memcpy(work->keys[i].bytes + 8 * word, &value, 8);
		}
	work->clock = (struct clock){.mono_ns = mono_ns, .wall_s = wall_s, .arg = work};
	work->maker = (struct io_maker){.clock = &work->clock};
	work->now_ns = START_NS;
	options.memory_bytes = (uint64_t)work->options->blocks * SLOT_BYTES;
	options.catalog_bytes = (uint64_t)trace->nblocks * 1024 + (16u << 20); /* every key is remembered */
	int error = store_open(NULL, &options, &work->maker, &work->store);
	if (!error)
		error = cairn_describe(work->store, &desc, &work->space);
	if (!error && work->options->hint_percent)
		error = replay_hints(trace, work->options->hint_percent, work->options->seed, work->last);
	return error;
}

/* A block's item, with a buffer of its own that is filled with the block's number. */
static struct cairn_item *item_fill(struct work *work, const uint32_t *refs, uint32_t at, size_t n)
{
	uint64_t *bytes = (uint64_t *)(void *)(work->bytes + n * BLOCK_BYTES);
	for (size_t i = 0; i < BLOCK_BYTES / 8; i++)
		bytes[i] = refs[at] * 0x9e3779b97f4a7c15u + i;
	work->bufs[n] = cairn_buf_of(bytes, BLOCK_BYTES);
	work->items[n] = (struct cairn_item){.key = work->keys[refs[at]], .parent = at ? &work->keys[refs[at - 1]] : NULL,
	                                     .bufs = &work->bufs[n], .nbufs = 1};
	return &work->items[n];
}

/* Reads blocks [from, to) of a request. Returns how many of them, from the first on, came with the right bytes. */
static long blocks_read(struct work *work, const uint32_t *refs, uint32_t from, uint32_t to)
{
	for (uint32_t i = from; i < to; i++) {
		(void)item_fill(work, refs, i, i - from);
		memset(work->bytes + (size_t)(i - from) * BLOCK_BYTES, 0, BLOCK_BYTES);
	}
	long good = cairn_get(work->store, work->space, work->items, to - from, NULL);
	if (good < 0)
		return good;
	for (uint32_t i = from; i < to; i++) {
		uint64_t first, want = refs[i] * 0x9e3779b97f4a7c15u;
		memcpy(&first, work->bytes + (size_t)(i - from) * BLOCK_BYTES, 8);
		if (work->items[i - from].status != CAIRN_OK)
			return i - from;
		if (first != want)
			return err_set(CAIRN_E_IO, "block %u came back with other bytes", refs[i]);
		work->result.read_blocks++;
	}
	return to - from;
}

/* What of the request is there; *ret_run: leading blocks. */
static int request_load(struct work *work, const struct trace_request *request, int read, uint32_t *ret_run)
{
	const uint32_t *refs = work->trace->refs + request->first;
	uint32_t full = request->nblocks - request->partial;
	for (uint32_t i = 0; i < full; i++)
		work->chain[i] = work->keys[refs[i]];
	struct cairn_chain chain = {.keys = work->chain, .nkeys = full};
	struct cairn_match_info info;
	cairn_match *match;
	int error = cairn_match_take(work->store, work->space, &chain, 1, 0, 0, &match);
	if (error)
		return error;
	cairn_match_get_info(match, &info);
	uint32_t run = (uint32_t)(info.tokens / TRACE_BLOCK_TOKENS);
	long got = read && run ? blocks_read(work, refs, 0, run) : run;
	cairn_match_release(work->store, match);
	if (got == run && run == full && request->partial) { /* a tail is never part of a match */
		long tail = blocks_read(work, refs, full, full + 1);
		got = tail < 0 ? tail : got + tail;
	}
	*ret_run = got < 0 ? 0 : (uint32_t)got;
	return got < 0 ? (int)got : 0;
}

static int request_store(struct work *work, const struct trace_request *request, uint32_t run)
{
	const uint32_t *refs = work->trace->refs + request->first;
	for (uint32_t i = run; i < request->nblocks; i++) {
		struct cairn_item *item = item_fill(work, refs, i, i - run);
		item->flags = request->partial && i == request->nblocks - 1 ? CAIRN_ITEM_TAIL : 0;
	}
	long good = run < request->nblocks
	                ? cairn_put(work->store, work->space, work->items, request->nblocks - run, NULL) : 0;
	return good < 0 ? (int)good : good < (long)(request->nblocks - run) ? work->items[good].status : 0;
}

static int request_hint(struct work *work, const struct trace_request *request)
{
	struct cairn_chain chain = {.keys = work->chain};
	for (uint64_t i = request->first; i < request->first + request->nblocks; i++)
		if (work->last[i])
			work->chain[chain.nkeys++] = work->keys[work->trace->refs[i]];
	return chain.nkeys ? cairn_hint(work->store, work->space, &chain, CAIRN_HINT_CLOSE) : 0;
}

static int work_run(struct work *work)
{
	uint32_t every = work->options->read_every ? work->options->read_every : 1;
	for (size_t r = 0; r < work->trace->nrequests; r++) {
		const struct trace_request *request = &work->trace->requests[r];
		uint64_t at = START_NS + request->time_us * 1000;
		uint32_t run = 0;
		work->now_ns = at > work->now_ns ? at : work->now_ns;
		int error = request_load(work, request, r % every == 0, &run);
		work->hit_tokens += trace_tokens(request, run);
		if (!error)
			error = request_store(work, request, run);
		if (!error && work->options->hint_percent)
			error = request_hint(work, request);
		if (error)
			return error;
	}
	return 0;
}

int policy_real(const struct policy_real_options *options, struct policy_real_result *ret_result)
{
	struct trace *trace = NULL;
	struct replay_options pure = {.policy = REPLAY_INDEX, .blocks = options->blocks,
	                              .hint_percent = options->hint_percent, .seed = options->seed};
	struct replay_result result;
	int error = trace_read(options->trace, options->starts, &trace);
	if (error)
		return error;
	struct work work = {.options = options, .trace = trace};
	error = work_start(&work);
	uint64_t started = clock_mono_ns(&clock_real);
	if (!error)
		error = work_run(&work);
	work.result.real_s = (double)(clock_mono_ns(&clock_real) - started) / 1e9;
	struct cairn_stat stat = {.size = sizeof(stat)};
	if (work.store && !cairn_stat(work.store, &stat))
		work.result.evicted_blocks = stat.tier[CAIRN_TIER_MEMORY].evicted_parts;
	(void)cairn_close(work.store);
	if (!error)
		error = replay_run(trace, &pure, &result);
	if (!error) {
		work.result.requests = trace->nrequests;
		work.result.real_percent = 100.0 * (double)work.hit_tokens / (double)(trace->tokens ? trace->tokens : 1);
		work.result.pure_percent = result.hit_percent;
		*ret_result = work.result;
	}
	mem_free(work.keys);
	mem_free(work.items);
	mem_free(work.bufs);
	mem_free(work.chain);
	mem_free(work.bytes);
	mem_free(work.last);
	trace_free(trace);
	return error;
}
