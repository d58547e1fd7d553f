/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The figure of keys: how long the keys of a prompt take.
 * Threads: one. Memory: a prompt and its keys.
 * Invariant: each round has other tokens.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"
#include "cli/cli.h"

enum {
	KEYS_BLOCKS = 8192,
	KEYS_TOKENS = 16,
	KEYS_RUNS = 15
};

static const struct bench_figure keys_figures[] = {
	{"derive.8192", "ms", "1.3 ms", "the keys of 8192 blocks of 16 tokens", 1.3, 1, 1, 0},
};

struct keys_work {
	uint32_t tokens[KEYS_BLOCKS * KEYS_TOKENS];
	cairn_key keys[KEYS_BLOCKS];
};

static int keys_start(struct bench *bench)
{
	bench->work = calloc(1, sizeof(struct keys_work));
	return bench->work ? 0 : say_error("out of memory; free some and try again");
}

static int keys_round(struct bench *bench, uint32_t round)
{
	static const cairn_digest weights = {.bytes = {1}};
	const struct cairn_space_desc desc = {
		.size = sizeof desc, .model = "bench", .weights = &weights, .kv_dtype = "f16", .block_tokens = KEYS_TOKENS};
	struct keys_work *work = bench->work;
	double times[KEYS_RUNS];

	for (uint32_t i = 0; i < KEYS_BLOCKS * KEYS_TOKENS; i++)
		work->tokens[i] = (uint32_t)(bench_random(bench) % 150000);
	for (uint32_t run = 0; run < KEYS_RUNS; run++) {
		cairn_derive *derive;
		double start = bench_now();

		if (cairn_derive_start_desc(&desc, 0, &derive))
			return say_error("%s", cairn_error_text());
		long keys =
			cairn_derive_tokens(derive, work->tokens, KEYS_BLOCKS * KEYS_TOKENS, NULL, 0, work->keys, KEYS_BLOCKS);
		times[run] = (bench_now() - start) * 1e3;
		cairn_derive_free(derive);
		if (keys != KEYS_BLOCKS)
			return say_error("%s", cairn_error_text());
	}
	bench_add(bench, round, "derive.8192", bench_quantile(times, KEYS_RUNS, 0.5), 0);
	return 0;
}

static void keys_done(struct bench *bench)
{
	free(bench->work);
}

const struct bench_family bench_keys = {
	.name = "keys",
	.figures = keys_figures,
	.nfigures = sizeof keys_figures / sizeof keys_figures[0],
	.start = keys_start,
	.round = keys_round,
	.done = keys_done,
};
