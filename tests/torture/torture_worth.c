/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torture_worth DIRECTORY: what a match says a load will take, against what it takes, on a real disk: from flash, from
 * memory, and half of each. The bounds are wide, since a busy machine is no reason to fail: what they find is a
 * prediction of another order.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "cairn/cairn.h"

enum { BLOCK = 512 << 10, BLOCKS = 256 };
#define FACTOR 6.0

static cairn_key keys[2][BLOCKS];
static uint8_t *room;

static double now_s(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static cairn *open_at(const char *directory, cairn_space **ret_space)
{
	static const cairn_digest weights = {{1}};
	const struct cairn_flash flash = {.budget_bytes = 1u << 30};
	struct cairn_options options = {.size = sizeof options, .flags = CAIRN_OPEN_CREATE, .memory_bytes = 512u << 20,
	                                .flash = &flash, .nflash = 1, .free_floor_bytes = 1};
	struct cairn_space_desc desc = {.size = sizeof desc, .model = "m", .weights = &weights, .kv_dtype = "bf16",
	                                .block_tokens = 16};
	cairn *store = NULL;
	if (cairn_open(directory, &options, &store) || cairn_describe(store, &desc, ret_space)) {
		fprintf(stderr, "%s\n", cairn_error_text());
		exit(1);
	}
	return store;
}

static void batch(cairn *store, const cairn_space *space, const cairn_key *chain, uint32_t n, int put)
{
	static struct cairn_item items[BLOCKS];
	static struct cairn_buf bufs[BLOCKS];
	struct cairn_call call = {.size = sizeof call, .durability = CAIRN_DURABLE_FLASH};
	for (uint32_t i = 0; i < n; i++) {
		bufs[i] = cairn_buf_of(room + (size_t)i * BLOCK, BLOCK);
		items[i] = (struct cairn_item){
		    .key = chain[i], .parent = i ? &chain[i - 1] : NULL, .bufs = &bufs[i], .nbufs = 1};
	}
	long good = put ? cairn_put(store, space, items, n, &call) : cairn_get(store, space, items, n, NULL);
	check(good == (long)n);
}

/* Whether the first n blocks of a chain are loaded in about the time that a match says. */
static int look(cairn *store, const cairn_space *space, const cairn_key *chain, uint32_t n, const char *what)
{
	struct cairn_chain of = {0, chain, n};
	struct cairn_match_info info;
	cairn_match *match;
	check(!cairn_match_take(store, space, &of, 1, 0, 0, &match));
	cairn_match_get_info(match, &info);
	check(info.tokens == n * 16ull);
	double begun = now_s();
	batch(store, space, chain, n, 0);
	double took = now_s() - begun;
	cairn_match_release(store, match);
	int good = info.load_s < took * FACTOR && took < info.load_s * FACTOR;
	printf("%-8s %6.1f ms said, %6.1f ms taken%s\n", what, info.load_s * 1e3, took * 1e3, good ? "" : "  FAILED");
	return good;
}

int main(int argc, char **argv)
{
	cairn_space *space;
	int good = 1;
	check(argc == 2);
	room = malloc((size_t)BLOCKS * BLOCK);
	check(room);
	memset(room, 7, (size_t)BLOCKS * BLOCK);
	for (uint32_t c = 0; c < 2; c++)
		for (uint32_t i = 0; i < BLOCKS; i++) {
			keys[c][i].bytes[0] = (uint8_t)(c + 1);
			keys[c][i].bytes[1] = (uint8_t)i;
			keys[c][i].bytes[2] = (uint8_t)(i >> 8);
		}
	cairn *store = open_at(argv[1], &space);
	for (int c = 0; c < 2; c++)
		batch(store, space, keys[c], BLOCKS, 1);
	check(!cairn_close(store));
	store = open_at(argv[1], &space);
	batch(store, space, keys[1], BLOCKS / 2, 0); /* it measures its disk */
	good &= look(store, space, keys[0], BLOCKS / 2, "flash");
	good &= look(store, space, keys[0], BLOCKS / 2, "memory");
	good &= look(store, space, keys[0], BLOCKS, "both");
	check(!cairn_close(store));
	free(room);
	return !good;
}
