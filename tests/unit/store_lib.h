/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store for unit tests, on a simulated disk (world_*) or in a directory of its own (place_*). Every block's bytes
 * follow from its key, so that whatever comes back can be told from whatever else. For test_*.c; after cmocka.h.
 */
#ifndef CAIRN_TESTS_UNIT_STORE_LIB_H
#define CAIRN_TESTS_UNIT_STORE_LIB_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/random.h"
#include "cairn/cairn.h"
#include "fmt/segment.h"
#include "io/sim.h"
#include "lib/engine.h"
#include "lib/serving.h"
#include "store/store.h"

#define MIB (1ull << 20)

/* ---- keys and bytes ---------------------------------------------------------------------------------------------- */

static inline cairn_key key_at(uint64_t chain, uint64_t index)
{
	cairn_key key;
	struct random random;
	random_init(&random, chain * 1000003 + index + 1);
	for (int i = 0; i < 4; i++) {
		uint64_t word = random_next(&random);
		memcpy(key.bytes + i * 8, &word, 8);
	}
	return key;
}

/* The bytes of a part; a `version` above 0 is other bytes of the same key. */
static inline void pattern_fill(void *bytes, size_t length, const cairn_key *key, uint32_t part, uint32_t version)
{
	struct random random;
	uint64_t seed;
	memcpy(&seed, key->bytes, 8);
	random_init(&random, seed ^ (uint64_t)part << 32 ^ version);
	uint8_t *to = bytes;
	for (size_t at = 0; at < length; at += 8) {
		uint64_t word = random_next(&random);
		memcpy(to + at, &word, length - at < 8 ? length - at : 8);
	}
}

static inline int pattern_is(const void *bytes, size_t length, const cairn_key *key, uint32_t part, uint32_t version)
{
	uint8_t *want = malloc(length + 1);
	pattern_fill(want, length, key, part, version);
	int same = !memcmp(want, bytes, length);
	free(want);
	return same;
}

static inline int zeros_are(const void *bytes, size_t length)
{
	const uint8_t *b = bytes;
	for (size_t i = 0; i < length; i++)
		if (b[i])
			return 0;
	return 1;
}

/* ---- spaces ------------------------------------------------------------------------------------------------------ */

static const cairn_digest lib_weights = {{0x5a}};

static inline struct cairn_space_desc lib_desc(const char *tenant, const char *model)
{
	return (struct cairn_space_desc){.size = sizeof(struct cairn_space_desc),
	                                 .tenant = tenant,
	                                 .model = model,
	                                 .weights = &lib_weights,
	                                 .kv_dtype = "bf16",
	                                 .block_tokens = 16};
}

static inline cairn_space *space_named(cairn *store, const char *tenant, const char *model)
{
	struct cairn_space_desc desc = lib_desc(tenant, model);
	cairn_space *space = NULL;
	int error = cairn_describe(store, &desc, &space);
	if (error)
		fail_msg("describe: %d %s", error, cairn_error_text());
	return space;
}

/* A space of `nparts` parts named "rank0" ...; those in `optional` (a mask) may be missing. */
static inline cairn_space *space_of_parts(cairn *store, const char *model, uint32_t nparts, uint64_t optional)
{
	static const char *const names[] = {"rank0", "rank1", "rank2", "rank3", "rank4", "rank5", "rank6", "rank7"};
	struct cairn_part parts[8] = {{0}};
	struct cairn_space_desc desc = lib_desc(NULL, model);
	for (uint32_t i = 0; i < nparts; i++)
		parts[i] = (struct cairn_part){.name = names[i], .optional = optional >> i & 1};
	desc.parts = parts;
	desc.nparts = nparts;
	cairn_space *space = NULL;
	int error = cairn_describe(store, &desc, &space);
	if (error)
		fail_msg("describe: %d %s", error, cairn_error_text());
	return space;
}

/* ---- one block at a time ----------------------------------------------------------------------------------------- */

struct put_one {
	cairn_key key;
	const cairn_key *parent;
	uint32_t part, version, length, durability, flags, timeout_ms;
};

static inline struct cairn_item put_item(cairn *store, const cairn_space *space, const struct put_one *put)
{
	uint8_t *bytes = malloc(put->length + 1);
	pattern_fill(bytes, put->length, &put->key, put->part, put->version);
	struct cairn_buf buf = cairn_buf_of(bytes, put->length);
	struct cairn_item item = {.key = put->key,
	                          .parent = put->parent,
	                          .bufs = &buf,
	                          .nbufs = 1,
	                          .part = (uint16_t)put->part,
	                          .flags = put->flags};
	struct cairn_call call = {.size = sizeof call, .durability = put->durability, .timeout_ms = put->timeout_ms};
	long n = cairn_put(store, space, &item, 1, &call);
	assert_true(n < 0 || (n == 1) == (item.status == CAIRN_OK || item.status == CAIRN_EXISTED));
	free(bytes);
	item.bufs = NULL;
	return item;
}

static inline int put_status(cairn *store, const cairn_space *space, const cairn_key *key, const cairn_key *parent,
                             uint32_t length, uint32_t durability)
{
	struct put_one put = {.key = *key, .parent = parent, .length = length, .durability = durability};
	return put_item(store, space, &put).status;
}

static inline void put_good(cairn *store, const cairn_space *space, const cairn_key *key, const cairn_key *parent,
                            uint32_t length, uint32_t durability)
{
	int status = put_status(store, space, key, parent, length, durability);
	if (status)
		fail_msg("put: %d %s", status, cairn_error_text());
}

/* Gets one part; when OK its bytes are the pattern's. Otherwise the destination holds no byte of it. */
static inline struct cairn_item get_item(cairn *store, const cairn_space *space, const cairn_key *key, uint32_t part,
                                         uint32_t length)
{
	uint8_t *bytes = malloc(length + 1);
	memset(bytes, 0xee, length);
	struct cairn_buf buf = cairn_buf_of(bytes, length);
	struct cairn_item item = {.key = *key, .bufs = &buf, .nbufs = 1, .part = (uint16_t)part};
	long n = cairn_get(store, space, &item, 1, NULL);
	assert_true(n < 0 || n == (item.status == CAIRN_OK));
	if (item.status == CAIRN_OK) {
		assert_int_equal(item.ret_bytes, length);
		assert_true(pattern_is(bytes, length, key, part, 0));
		assert_true(item.ret_check == cairn_check(bytes, length));
	} else if (item.status == CAIRN_DAMAGED) {
		assert_true(zeros_are(bytes, length));
	}
	free(bytes);
	item.bufs = NULL;
	return item;
}

static inline int get_status(cairn *store, const cairn_space *space, const cairn_key *key, uint32_t length)
{
	return get_item(store, space, key, 0, length).status;
}

/* A chain of `n` blocks, in one batch. Returns how many were taken. */
static inline long put_chain(cairn *store, const cairn_space *space, uint64_t chain, uint32_t from, uint32_t n,
                             uint32_t length, uint32_t durability)
{
	struct cairn_item *items = calloc(n, sizeof *items);
	struct cairn_buf *bufs = calloc(n, sizeof *bufs);
	cairn_key *keys = calloc(n + 1, sizeof *keys);
	uint8_t *bytes = malloc((size_t)n * length);
	for (uint32_t i = 0; i <= n; i++)
		keys[i] = key_at(chain, from + i - 1);
	for (uint32_t i = 0; i < n; i++) {
		pattern_fill(bytes + (size_t)i * length, length, &keys[i + 1], 0, 0);
		bufs[i] = cairn_buf_of(bytes + (size_t)i * length, length);
		items[i] =
			(struct cairn_item){.key = keys[i + 1], .parent = from + i ? &keys[i] : NULL, .bufs = &bufs[i], .nbufs = 1};
	}
	struct cairn_call call = {.size = sizeof call, .durability = durability};
	long good = cairn_put(store, space, items, n, &call);
	free(items);
	free(bufs);
	free(keys);
	free(bytes);
	return good;
}

/* Tokens of one chain of group 0 that can be had. */
static inline uint64_t match_tokens(cairn *store, const cairn_space *space, uint64_t chain, uint32_t n)
{
	cairn_key *keys = calloc(n, sizeof *keys);
	for (uint32_t i = 0; i < n; i++)
		keys[i] = key_at(chain, i);
	struct cairn_chain of = {0, keys, n};
	cairn_match *match;
	struct cairn_match_info info;
	int error = cairn_match_take(store, space, &of, 1, 0, 0, &match);
	if (error)
		fail_msg("match: %d %s", error, cairn_error_text());
	cairn_match_get_info(match, &info);
	cairn_match_release(store, match);
	free(keys);
	return info.tokens;
}

static inline struct cairn_stat stat_of(cairn *store)
{
	struct cairn_stat stat = {.size = sizeof stat};
	assert_int_equal(cairn_stat(store, &stat), 0);
	return stat;
}

static inline uint32_t why(cairn *store, const cairn_space *space, const cairn_key *key)
{
	cairn_digest id;
	struct cairn_explanation explanation;
	cairn_space_get_id(space, &id);
	assert_int_equal(cairn_explain(store, &id, key, 0, &explanation), 0);
	return explanation.reason;
}

static inline void verify(cairn *store)
{
	cairn *own = served_inside(store);
	pthread_mutex_lock(&own->lock);
	entry_verify(own);
	pthread_mutex_unlock(&own->lock);
}

/* ---- on a simulated disk ----------------------------------------------------------------------------------------- */

struct world {
	struct sim_world *sim;
	struct io_maker maker;
	struct cairn_options options;
	struct cairn_flash flash[STORE_DEVICES];
};
#define WORLD_FLASH "s/flash.cairn"

/* One device; segments of 1 MiB. */
static inline void world_init(struct world *world, uint64_t seed, uint64_t flash_bytes, uint64_t memory_bytes)
{
	memset(world, 0, sizeof *world);
	world->sim = sim_new(seed);
	world->maker = sim_maker(world->sim);
	world->flash[0].budget_bytes = flash_bytes;
	world->options = (struct cairn_options){.size = sizeof world->options,
	                                        .flags = CAIRN_OPEN_CREATE,
	                                        .memory_bytes = memory_bytes,
	                                        .catalog_bytes = MIB,
	                                        .flash = world->flash,
	                                        .nflash = 1,
	                                        .free_floor_bytes = 1,
	                                        .segment_bytes = MIB};
}

static inline void world_done(struct world *world)
{
	sim_free(world->sim);
}

static inline int world_try(struct world *world, cairn **ret_store)
{
	cairn *own;
	int error = store_open("s", &world->options, &world->maker, &own);
	return error ? error : served_open(own, NULL, ret_store);
}

static inline cairn *world_open(struct world *world)
{
	cairn *store = NULL;
	int error = world_try(world, &store);
	if (error)
		fail_msg("open: %d %s", error, cairn_error_text());
	verify(store);
	return store;
}

/* The process dies (power: and the machine with it), and the store is opened anew. */
static inline cairn *world_reopen_dead(struct world *world, cairn *store, int power)
{
	store = served_leave(store);
	sim_crash_at(world->sim, 0, 0);
	if (power)
		sim_crash(world->sim);
	else
		sim_kill(world->sim);
	store_abandon(store);
	sim_crash_at(world->sim, 0, 0); /* the next process begins */
	return world_open(world);
}

static inline cairn *world_reopen(struct world *world, cairn *store)
{
	verify(store);
	int error = served_close(store);
	if (error)
		fail_msg("close: %d %s", error, cairn_error_text());
	return world_open(world);
}

/* Lets the loops run for so long. */
static inline void world_run(struct world *world, cairn *store, uint64_t ms)
{
	cairn *own = served_inside(store);
	uint64_t until = clock_mono_ns(own->maker->clock) + ms * 1000000;
	pthread_mutex_lock(&own->lock);
	while (!store_wait(own, until))
		if (!store_has_flash(own)) /* without I/O there is nothing that moves time */
			sim_advance(world->sim, 1000000);
	pthread_mutex_unlock(&own->lock);
}

/* ---- behind a cairnd, where tests are to run over one (lib/serving.h) ------------------------------------------- */

static inline int lib_open(const char *place, const struct cairn_options *options, cairn **ret_store)
{
	cairn *own;
	int error = cairn_open(place, options, &own);
	struct cairn_options client = {.size = sizeof client, .workers = options ? options->workers : 0};
	return error ? error : served_open(own, &client, ret_store);
}

static inline void lib_abandon(cairn *store)
{
	store_abandon(served_leave(store));
}

/* At the top of a test that is not run over some kind of cairnd, and why. */
static inline void not_over(int kind, const char *why_not)
{
	if (served_kind() != kind && !(kind == SERVED_TCP && served_kind() > kind))
		return;
	print_message("not over %s: %s\n", kind == SERVED_UCX ? "ucx" : kind == SERVED_TCP ? "tcp" : "unix", why_not);
	skip();
}

/* ---- in a real directory ----------------------------------------------------------------------------------------- */

struct place {
	char path[128];
	struct cairn_options options;
	struct cairn_flash flash[4];
};

static inline void place_init(struct place *place, uint64_t flash_bytes, uint64_t memory_bytes)
{
	engine_or_skip();
	const char *base = getenv("TMPDIR");
	memset(place, 0, sizeof *place);
	snprintf(place->path, sizeof place->path, "%s/cairn-test-XXXXXX", base && base[0] ? base : "/tmp");
	assert_non_null(mkdtemp(place->path));
	place->flash[0].budget_bytes = flash_bytes;
	place->options = (struct cairn_options){.size = sizeof place->options,
	                                        .flags = CAIRN_OPEN_CREATE,
	                                        .memory_bytes = memory_bytes,
	                                        .catalog_bytes = MIB,
	                                        .flash = place->flash,
	                                        .nflash = 1,
	                                        .free_floor_bytes = 1,
	                                        .segment_bytes = MIB,
	                                        .io_engine = engine_wanted()};
}

static inline void place_done(struct place *place)
{
	char command[200];
	snprintf(command, sizeof command, "rm -rf '%s'", place->path);
	assert_int_equal(system(command), 0);
}

static inline cairn *place_open(struct place *place)
{
	cairn *store = NULL;
	int error = lib_open(place->path, &place->options, &store);
	if (error)
		fail_msg("open: %d %s", error, cairn_error_text());
	return store;
}

/* From here on a test's own calls mean the store wherever it is. */
#define cairn_open lib_open
#define cairn_close served_close
#define store_abandon lib_abandon

#endif
