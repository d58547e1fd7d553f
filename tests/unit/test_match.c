/* SPDX-License-Identifier: Apache-2.0 */
/* src/store/match.c: the rules of groups against a plain reading of them, what a match holds, hints. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/store_lib.h"

/* ---- the rules, against brute force ------------------------------------------------------------------------------ */

enum {
	GROUPS = 4,
	BLOCKS = 40,
	PARTS = 3
};

struct reference {
	struct cairn_group groups[GROUPS];
	struct cairn_part parts[PARTS];
	uint32_t ngroups, nparts;
	cairn_key keys[GROUPS][BLOCKS];
	uint8_t there[GROUPS][BLOCKS]; /* mask of parts */
	uint32_t nkeys[GROUPS];
	int given[GROUPS];
};

static int block_there(const struct reference *r, uint32_t g, uint64_t block, uint64_t parts)
{
	uint64_t have = r->there[g][block], required = 0, all = (1ull << r->nparts) - 1;
	for (uint32_t p = 0; p < r->nparts; p++)
		required |= r->parts[p].optional ? 0 : 1ull << p;
	if (parts)
		return (have & parts & all) == (parts & all);
	return (have & required) == required && have;
}

/* Token by token: is every token that the rule needs in a block that is there, and does the prefix end with one? */
static int prefix_good(const struct reference *r, uint64_t tokens, uint64_t parts)
{
	for (uint32_t g = 0; g < r->ngroups; g++) {
		uint32_t size = r->groups[g].block_tokens;
		if (!r->given[g])
			continue;
		if (tokens % size || tokens / size > r->nkeys[g])
			return 0;
		for (uint64_t token = 0; token < tokens; token++) {
			int needed = r->groups[g].rule == CAIRN_RULE_ALL ||
			             (r->groups[g].rule == CAIRN_RULE_TRAILING && token + r->groups[g].trailing_tokens >= tokens) ||
			             (r->groups[g].rule == CAIRN_RULE_SNAPSHOT && token + 1 == tokens);
			if (needed && !block_there(r, g, token / size, parts))
				return 0;
		}
	}
	return 1;
}

static void reference_draw(struct reference *r, struct random *random, uint64_t round)
{
	static const uint32_t sizes[] = {1, 2, 3, 4, 6, 8, 12};
	static const char *const names[] = {"a", "b", "c", "d"}, *const ranks[] = {"r0", "r1", "r2"};
	memset(r, 0, sizeof *r);
	r->ngroups = 1 + (uint32_t)random_below(random, GROUPS);
	r->nparts = 1 + (uint32_t)random_below(random, PARTS);
	for (uint32_t p = 0; p < r->nparts; p++)
		r->parts[p] = (struct cairn_part){.name = ranks[p], .optional = p && random_below(random, 3) == 0};
	uint64_t most = 0;
	for (uint32_t g = 0; g < r->ngroups; g++) {
		r->groups[g] = (struct cairn_group){.name = names[g],
		                                    .block_tokens = sizes[random_below(random, 7)],
		                                    .rule = (uint32_t)random_below(random, 3)};
		if (r->groups[g].rule == CAIRN_RULE_TRAILING)
			r->groups[g].trailing_tokens = 1 + (uint32_t)random_below(random, 20);
		r->nkeys[g] = (uint32_t)random_below(random, BLOCKS + 1);
		r->given[g] = random_below(random, 8) != 0;
		most |= (uint64_t)r->given[g];
		for (uint32_t b = 0; b < BLOCKS; b++)
			r->keys[g][b] = key_at(round * GROUPS + g, b);
	}
	r->given[0] |= !most;
}

static void put_part(cairn *store, const cairn_space *space, const cairn_key *key, uint32_t g, uint32_t part)
{
	uint8_t byte = 1;
	struct cairn_buf buf = cairn_buf_of(&byte, 1);
	struct cairn_item item = {.key = *key, .bufs = &buf, .nbufs = 1, .group = (uint16_t)g, .part = (uint16_t)part};
	assert_int_equal(cairn_put(store, space, &item, 1, NULL), 1);
}

static void test_match__agrees_with_plain_reading_when_random(void **state)
{
	(void)state;
	struct cairn_options options = {
		.size = sizeof options, .flags = CAIRN_OPEN_NO_FLASH, .memory_bytes = 64 * MIB, .catalog_bytes = 4 * MIB};
	cairn *store;
	struct random random;
	random_init(&random, 7);
	uint64_t found = 0, whole = 0;
	static struct reference r;
	assert_int_equal(cairn_open(NULL, &options, &store), 0);
	for (uint64_t round = 0; round < 300; round++) {
		reference_draw(&r, &random, round);
		char model[16];
		snprintf(model, sizeof model, "m%llu", (unsigned long long)round);
		struct cairn_space_desc desc = lib_desc(NULL, model);
		desc.groups = r.groups;
		desc.ngroups = r.ngroups;
		desc.parts = r.parts;
		desc.nparts = r.nparts;
		desc.block_tokens = 0;
		cairn_space *space;
		assert_int_equal(cairn_describe(store, &desc, &space), 0);
		uint32_t gaps = (uint32_t)random_below(&random, 200000);
		for (uint32_t g = 0; g < r.ngroups; g++)
			for (uint32_t b = 0; b < r.nkeys[g]; b++)
				for (uint32_t p = 0; p < r.nparts; p++)
					if (!random_chance(&random, gaps)) {
						put_part(store, space, &r.keys[g][b], g, p);
						r.there[g][b] |= (uint8_t)(1u << p);
					}
		struct cairn_chain chains[GROUPS];
		size_t n = 0;
		uint64_t end = UINT64_MAX;
		for (uint32_t g = r.ngroups; g-- > 0;)
			if (r.given[g]) {
				chains[n++] = (struct cairn_chain){g, r.keys[g], r.nkeys[g]};
				uint64_t tokens = (uint64_t)r.nkeys[g] * r.groups[g].block_tokens;
				end = tokens < end ? tokens : end;
			}
		uint64_t parts = random_below(&random, 2) ? random_below(&random, 1ull << r.nparts) : 0, want = end;
		while (want && !prefix_good(&r, want, parts))
			want--;
		cairn_match *match;
		struct cairn_match_info info;
		assert_int_equal(cairn_match_take(store, space, chains, n, parts, 0, &match), 0);
		cairn_match_get_info(match, &info);
		if (info.tokens != want)
			fail_msg("round %llu: %llu tokens, want %llu", (unsigned long long)round, (unsigned long long)info.tokens,
			         (unsigned long long)want);
		assert_int_equal(info.tier_bytes[CAIRN_TIER_MEMORY], info.bytes);
		assert_int_equal(info.worth_tokens, info.tokens);
		found += want > 0;
		whole += want == end;
		cairn_match_release(store, match);
		cairn_digest id;
		cairn_space_get_id(space, &id);
		assert_true(cairn_drop_space(store, &id) >= 0);
	}
	assert_true(found > 50 && whole > 10 && whole < 290);
	verify(store);
	assert_int_equal(cairn_close(store), 0);
}

static void test_match__ignores_tails_when_named_as_blocks(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 1, 16 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	put_chain(store, space, 1, 0, 3, 1000, CAIRN_DURABLE_NONE);
	cairn_key parent = key_at(1, 2);
	struct put_one tail = {.key = key_at(1, 3),
	                       .parent = &parent,
	                       .length = 500,
	                       .flags = CAIRN_ITEM_TAIL,
	                       .durability = CAIRN_DURABLE_FLASH};
	assert_int_equal(put_item(store, space, &tail).status, CAIRN_OK);
	assert_int_equal(match_tokens(store, space, 1, 4), 3 * 16);
	assert_int_equal(get_status(store, space, &tail.key, 500), CAIRN_OK);
	store = world_reopen(&world, store);
	space = space_named(store, NULL, "m");
	assert_int_equal(match_tokens(store, space, 1, 4), 3 * 16);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

/* ---- what a match holds ------------------------------------------------------------------------------------------ */

static cairn_match *match_of(cairn *store, const cairn_space *space, uint64_t chain, uint32_t n, uint32_t timeout_ms)
{
	cairn_key keys[64];
	assert_true(n <= 64);
	for (uint32_t i = 0; i < n; i++)
		keys[i] = key_at(chain, i);
	struct cairn_chain of = {0, keys, n};
	cairn_match *match = NULL;
	int error = cairn_match_take(store, space, &of, 1, 0, timeout_ms, &match);
	if (error)
		fail_msg("match: %d %s", error, cairn_error_text());
	return match;
}

static void test_match__keeps_blocks_when_memory_is_all_there_is(void **state)
{
	(void)state;
	struct cairn_options options = {
		.size = sizeof options, .flags = CAIRN_OPEN_NO_FLASH, .memory_bytes = 8 * MIB, .catalog_bytes = MIB};
	cairn *store;
	assert_int_equal(cairn_open(NULL, &options, &store), 0);
	cairn_space *space = space_named(store, NULL, "m");
	assert_int_equal(put_chain(store, space, 1, 0, 20, 100000, 0), 20);
	cairn_match *match = match_of(store, space, 1, 20, 60000);
	usleep(100000); /* what comes now is younger, as far as memory tells ages apart */
	for (uint64_t chain = 2; chain < 30; chain++) {
		cairn_key key = key_at(chain, 0);
		put_good(store, space, &key, NULL, 400000, 0);
	}
	for (uint32_t i = 0; i < 20; i++) {
		cairn_key key = key_at(1, i);
		assert_int_equal(get_status(store, space, &key, 100000), CAIRN_OK);
	}
	cairn_match_release(store, match);
	usleep(100000);
	for (uint64_t chain = 30; chain < 60; chain++) {
		cairn_key key = key_at(chain, 0);
		put_good(store, space, &key, NULL, 400000, 0);
	}
	assert_true(match_tokens(store, space, 1, 20) < 20 * 16);
	verify(store);
	assert_int_equal(cairn_close(store), 0);
}

static void test_match__keeps_blocks_when_flash_turns_over(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 2, 24 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	assert_int_equal(put_chain(store, space, 1, 0, 20, 100000, CAIRN_DURABLE_FLASH), 20);
	cairn_match *match = match_of(store, space, 1, 20, 1000000000);
	for (uint64_t chain = 2; chain < 60; chain++)
		assert_int_equal(put_chain(store, space, chain, 0, 10, 100000, CAIRN_DURABLE_FLASH), 10);
	assert_true(stat_of(store).tier[CAIRN_TIER_FLASH].evicted_parts > 200);
	const cairn *own = served_inside(store);
	uint32_t number = served_space(store, space)->number;
	for (uint32_t i = 0; i < 20; i++) {
		cairn_key key = key_at(1, i);
		/* In flash, where all else has turned over: not only in memory. */
		uint32_t entry = catalog_find(own->catalog, number, key.bytes, 0);
		assert_true(entry && catalog_at(own->catalog, entry)->flags & CATALOG_FLASH);
		assert_int_equal(get_status(store, space, &key, 100000), CAIRN_OK);
	}
	cairn_match_release(store, match);
	assert_int_equal(stat_of(store).matches, 0);
	verify(store);
	store_abandon(store);
	world_done(&world);
}

static void test_match__lets_go_when_its_time_is_over(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 3, 16 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	put_chain(store, space, 1, 0, 2, 1000, 0);
	cairn_match *match = match_of(store, space, 1, 2, 50);
	cairn *own = served_inside(store);
	uint32_t number = served_space(store, space)->number;
	pthread_mutex_lock(&own->lock);
	uint32_t entry = catalog_find(own->catalog, number, key_at(1, 0).bytes, 0);
	assert_int_equal(catalog_at(own->catalog, entry)->holds, 1);
	pthread_mutex_unlock(&own->lock);
	world_run(&world, store, 100);
	assert_int_equal(catalog_at(own->catalog, entry)->holds, 0);
	struct cairn_match_info info;
	cairn_match_get_info(match, &info); /* the answer itself stays */
	assert_int_equal(info.tokens, 32);
	cairn_match_release(store, match);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

/* Hundreds of requests share a system prompt: what cannot be held is refused, not promised. */
static void test_match__is_busy_when_block_is_held_too_often(void **state)
{
	(void)state;
	enum {
		MANY = 300
	};
	struct world world;
	world_init(&world, 4, 16 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	put_chain(store, space, 1, 0, 2, 1000, CAIRN_DURABLE_FLASH);
	cairn_key keys[2] = {key_at(1, 0), key_at(1, 1)};
	struct cairn_chain chain = {0, keys, 2};
	cairn_match *matches[MANY];
	uint32_t n = 0;
	int error = 0;
	while (n < MANY && !(error = cairn_match_take(store, space, &chain, 1, 0, 0, &matches[n])))
		n++;
	assert_int_equal(error, CAIRN_E_BUSY);
	assert_int_equal(n, 255);
	assert_int_equal(stat_of(store).matches, 255);
	assert_int_equal(get_status(store, space, &keys[0], 1000), CAIRN_OK);
	while (n)
		cairn_match_release(store, matches[--n]);
	cairn *own = served_inside(store);
	uint32_t number = served_space(store, space)->number;
	pthread_mutex_lock(&own->lock);
	assert_int_equal(catalog_at(own->catalog, catalog_find(own->catalog, number, keys[0].bytes, 0))->holds, 0);
	pthread_mutex_unlock(&own->lock);
	assert_int_equal(cairn_match_take(store, space, &chain, 1, 0, 0, &matches[0]), 0);
	cairn_match_release(store, matches[0]);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

/* Field bug 54, 160: looking up again and again changes nothing, and what goes between a match and a get is a miss. */
static void test_match__is_the_same_when_asked_again(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 5, 16 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	put_chain(store, space, 1, 0, 10, 1000, CAIRN_DURABLE_NONE);
	for (int i = 0; i < 5; i++)
		assert_int_equal(match_tokens(store, space, 1, 20), 160);
	put_chain(store, space, 1, 10, 10, 1000, CAIRN_DURABLE_NONE);
	assert_int_equal(match_tokens(store, space, 1, 20), 320);
	cairn_match *match = match_of(store, space, 1, 20, 0);
	cairn_key dropped[3] = {key_at(1, 4), key_at(1, 5), key_at(1, 6)};
	assert_int_equal(cairn_drop(store, space, dropped, 3), 3);
	assert_int_equal(get_status(store, space, &dropped[0], 1000), CAIRN_MISS);
	put_good(store, space, &dropped[0], NULL, 1000, 0); /* somebody else's use of the entry */
	cairn_match_release(store, match);
	assert_int_equal(match_tokens(store, space, 1, 20), 5 * 16);
	verify(store);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

static void test_match__finds_nothing_worth_when_loading_is_slower(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 6, 16 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	struct cairn_space_desc desc = lib_desc(NULL, "m");
	cairn_space *space, *again;
	desc.cost_a_s = 1e-12; /* nothing is faster than this model */
	assert_int_equal(cairn_describe(store, &desc, &space), 0);
	put_chain(store, space, 1, 0, 4, 100000, 0);
	cairn_match *match = match_of(store, space, 1, 4, 0);
	struct cairn_match_info info;
	cairn_match_get_info(match, &info);
	assert_int_equal(info.tokens, 64);
	assert_int_equal(info.worth_tokens, 0);
	cairn_match_release(store, match);
	desc.cost_a_s = 1;
	assert_int_equal(cairn_describe(store, &desc, &again), 0);
	assert_ptr_equal(space, again);
	match = match_of(store, space, 1, 4, 0);
	cairn_match_get_info(match, &info);
	assert_int_equal(info.worth_tokens, 64);
	assert_true(info.recompute_s > info.load_s && info.load_s > 0);
	cairn_match_release(store, match);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

/* ---- what is worth loading --------------------------------------------------------------------------------------- */

enum { WORTH_BLOCK = 64 << 10 };

/* A store on a disk where each read takes up to `delay_ms`, with a chain of 60 blocks of 1 ms of computing each: none
 * of them in memory. Whatever was read before tells the store how slow that is. */
static cairn *worth_open(struct world *world, uint64_t delay_ms, cairn_space **ret_space)
{
	world_init(world, 11, 64 * MIB, 16 * MIB);
	cairn *store = world_open(world);
	struct cairn_space_desc desc = lib_desc(NULL, "m");
	desc.cost_a_s = 1e-3 / 16;
	assert_int_equal(cairn_describe(store, &desc, ret_space), 0);
	assert_int_equal(put_chain(store, *ret_space, 1, 0, 60, WORTH_BLOCK, CAIRN_DURABLE_FLASH), 60);
	assert_int_equal(put_chain(store, *ret_space, 2, 0, 60, WORTH_BLOCK, CAIRN_DURABLE_FLASH), 60);
	store = world_reopen(world, store);
	assert_int_equal(cairn_describe(store, &desc, ret_space), 0);
	struct sim_faults faults = {.delay_ns_max = delay_ms * 1000000};
	sim_set_faults(world->sim, NULL, &faults);
	for (uint32_t i = 0; i < 20 && delay_ms; i++) {
		cairn_key key = key_at(2, i);
		assert_int_equal(get_status(store, *ret_space, &key, WORTH_BLOCK), CAIRN_OK);
	}
	return store;
}

static struct cairn_match_info worth_info(cairn *store, const cairn_space *space, uint64_t chain, uint32_t n)
{
	struct cairn_match_info info;
	cairn_match *match = match_of(store, space, chain, n, 0);
	cairn_match_get_info(match, &info);
	cairn_match_release(store, match);
	return info;
}

static void test_match__finds_less_worth_the_slower_flash_was_seen_to_be(void **state)
{
	(void)state;
	struct world world;
	cairn_space *space;
	double load_s = 0;
	static const uint64_t delays_ms[] = {0, 1, 20, 2000};
	for (int i = 0; i < 4; i++) {
		cairn *store = worth_open(&world, delays_ms[i], &space);
		struct cairn_match_info info = worth_info(store, space, 1, 60);
		assert_int_equal(info.tokens, 60 * 16);
		assert_int_equal(info.tier_bytes[CAIRN_TIER_FLASH], 60ull * WORTH_BLOCK);
		/* 60 ms of computing: reads of 2 s are worth nothing, however many go side by side. */
		assert_int_equal(info.worth_tokens, i < 3 ? 60 * 16 : 0);
		if (i < 3) {
			assert_true(info.load_s > load_s && info.load_s < info.recompute_s);
			assert_true(info.tier_s[CAIRN_TIER_FLASH] > 0 && info.tier_s[CAIRN_TIER_PEER] == 0);
			load_s = info.load_s;
		} else {
			assert_true(info.load_s == 0 && info.recompute_s == 0);
		}
		assert_int_equal(cairn_close(store), 0);
		world_done(&world);
	}
}

static void test_match__is_worth_a_shorter_prefix_when_its_end_is_slow(void **state)
{
	(void)state;
	struct world world;
	cairn_space *space;
	cairn *store = worth_open(&world, 2000, &space);
	for (uint32_t i = 0; i < 25; i++) { /* the head comes to memory */
		cairn_key key = key_at(1, i);
		assert_int_equal(get_status(store, space, &key, WORTH_BLOCK), CAIRN_OK);
	}
	struct cairn_match_info info = worth_info(store, space, 1, 60);
	assert_int_equal(info.tokens, 60 * 16);
	assert_int_equal(info.worth_tokens, 25 * 16);
	assert_true(info.tier_s[CAIRN_TIER_FLASH] == 0 && info.tier_s[CAIRN_TIER_MEMORY] > 0);
	assert_true(info.load_s < info.recompute_s && info.recompute_s > 0.0249 && info.recompute_s < 0.0251);
	/* What computing costs more is worth the wait after all. */
	struct cairn_space_desc desc = lib_desc(NULL, "m");
	desc.cost_a_s = 1;
	assert_int_equal(cairn_describe(store, &desc, &space), 0);
	assert_int_equal(worth_info(store, space, 1, 60).worth_tokens, 60 * 16);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

static void test_match__takes_longer_when_reads_are_under_way(void **state)
{
	(void)state;
	struct world world;
	cairn_space *space;
	cairn *store = worth_open(&world, 1, &space);
	double idle_s = worth_info(store, space, 1, 40).load_s;
	assert_true(idle_s > 0);
	cairn_key keys[40];
	for (uint32_t i = 0; i < 40; i++)
		keys[i] = key_at(2, 20 + i);
	struct cairn_chain chain = {0, keys, 40};
	assert_int_equal(cairn_hint(store, space, &chain, CAIRN_HINT_RESUME), 0); /* begins to read, and waits for none */
	double busy_s = worth_info(store, space, 1, 40).load_s;
	assert_true(busy_s > 1.2 * idle_s);
	world_run(&world, store, 1000); /* they are here */
	double after_s = worth_info(store, space, 1, 40).load_s;
	assert_true(after_s < busy_s);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

/* ---- hints ------------------------------------------------------------------------------------------------------- */

static void test_match__evicts_closed_chain_first_when_hinted(void **state)
{
	(void)state;
	struct cairn_options options = {
		.size = sizeof options, .flags = CAIRN_OPEN_NO_FLASH, .memory_bytes = 8 * MIB, .catalog_bytes = MIB};
	cairn *store;
	assert_int_equal(cairn_open(NULL, &options, &store), 0);
	cairn_space *space = space_named(store, NULL, "m");
	cairn_key keys[10];
	put_chain(store, space, 1, 0, 10, 100000, 0);
	put_chain(store, space, 2, 0, 10, 100000, 0); /* younger, and closed */
	for (uint32_t i = 0; i < 10; i++)
		keys[i] = key_at(2, i);
	struct cairn_chain chain = {0, keys, 10};
	assert_int_equal(cairn_hint(store, space, &chain, CAIRN_HINT_PAUSE), 0);
	assert_int_equal(cairn_hint(store, space, &chain, CAIRN_HINT_CLOSE), 0);
	assert_int_equal(cairn_hint(store, space, &chain, 9), CAIRN_E_INVAL);
	for (uint64_t other = 3; other < 16; other++) {
		cairn_key key = key_at(other, 0);
		put_good(store, space, &key, NULL, 400000, 0);
	}
	assert_int_equal(match_tokens(store, space, 1, 10), 160);
	assert_true(match_tokens(store, space, 2, 10) < 160);
	assert_int_equal(cairn_close(store), 0);
}

static void test_match__brings_chain_to_memory_when_it_resumes(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 7, 32 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	assert_int_equal(put_chain(store, space, 1, 0, 10, 50000, CAIRN_DURABLE_FLASH), 10);
	store = world_reopen(&world, store);
	space = space_named(store, NULL, "m");
	cairn_key keys[10];
	for (uint32_t i = 0; i < 10; i++)
		keys[i] = key_at(1, i);
	struct cairn_chain chain = {0, keys, 10};
	assert_int_equal(stat_of(store).tier[CAIRN_TIER_MEMORY].parts, 0);
	assert_int_equal(cairn_hint(store, space, &chain, CAIRN_HINT_RESUME), 0);
	world_run(&world, store, 50);
	struct cairn_item item = get_item(store, space, &keys[0], 0, 50000);
	assert_int_equal(item.status, CAIRN_OK);
	assert_int_equal(item.ret_tier, CAIRN_TIER_MEMORY);
	assert_int_equal(stat_of(store).tier[CAIRN_TIER_MEMORY].parts, 10);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_match__agrees_with_plain_reading_when_random),
		cmocka_unit_test(test_match__ignores_tails_when_named_as_blocks),
		cmocka_unit_test(test_match__keeps_blocks_when_memory_is_all_there_is),
		cmocka_unit_test(test_match__keeps_blocks_when_flash_turns_over),
		cmocka_unit_test(test_match__lets_go_when_its_time_is_over),
		cmocka_unit_test(test_match__is_busy_when_block_is_held_too_often),
		cmocka_unit_test(test_match__is_the_same_when_asked_again),
		cmocka_unit_test(test_match__finds_nothing_worth_when_loading_is_slower),
		cmocka_unit_test(test_match__finds_less_worth_the_slower_flash_was_seen_to_be),
		cmocka_unit_test(test_match__is_worth_a_shorter_prefix_when_its_end_is_slow),
		cmocka_unit_test(test_match__takes_longer_when_reads_are_under_way),
		cmocka_unit_test(test_match__evicts_closed_chain_first_when_hinted),
		cmocka_unit_test(test_match__brings_chain_to_memory_when_it_resumes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
