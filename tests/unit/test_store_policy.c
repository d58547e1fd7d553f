/* SPDX-License-Identifier: Apache-2.0 */
/* The policy inside the store: what counts as a use, what is remembered, hints, writes to flash within a budget. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/store_lib.h"

#define LENGTH 100000u
#define SECOND 1000000000ull

static uint32_t uses_of(cairn *store, const cairn_space *space, uint64_t chain, uint64_t index)
{
	cairn_digest id;
	cairn_key key = key_at(chain, index);
	struct cairn_explanation explanation;
	cairn_space_get_id(space, &id);
	assert_int_equal(cairn_explain(store, &id, &key, 0, &explanation), 0);
	return explanation.uses;
}

static cairn *memory_store(struct world *world, uint64_t memory_bytes)
{
	world_init(world, 1, 16 * MIB, memory_bytes);
	world->options.flags = CAIRN_OPEN_NO_FLASH;
	return world_open(world);
}

/* A request is a match, gets while it is open, and a put of what was missing: one use for each block. */
static void test_store_policy__uses_are_counted_once_a_request(void **state)
{
	(void)state;
	struct world world;
	cairn *store = memory_store(&world, 16 * MIB);
	cairn_space *space = space_named(store, NULL, "m");
	assert_int_equal(put_chain(store, space, 1, 0, 4, LENGTH, 0), 4);
	assert_int_equal(uses_of(store, space, 1, 0), 1);
	cairn_key keys[4];
	for (uint32_t i = 0; i < 4; i++)
		keys[i] = key_at(1, i);
	struct cairn_chain of = {0, keys, 3};
	cairn_match *match;
	assert_int_equal(cairn_match_take(store, space, &of, 1, 0, 0, &match), 0);
	assert_int_equal(get_status(store, space, &keys[0], LENGTH), CAIRN_OK);
	cairn_match_release(store, match);
	assert_int_equal(uses_of(store, space, 1, 0), 2);
	assert_int_equal(uses_of(store, space, 1, 2), 2);
	assert_int_equal(uses_of(store, space, 1, 3), 1);
	assert_int_equal(get_status(store, space, &keys[0], LENGTH), CAIRN_OK); /* of its own */
	assert_int_equal(uses_of(store, space, 1, 0), 3);
	assert_int_equal(put_status(store, space, &keys[3], &keys[2], LENGTH, 0), CAIRN_EXISTED); /* computed again */
	assert_int_equal(uses_of(store, space, 1, 3), 2);
	verify(store);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

static void test_store_policy__uses_are_remembered_after_eviction(void **state)
{
	(void)state;
	struct world world;
	cairn *store = memory_store(&world, 8 * MIB);
	cairn_space *space = space_named(store, NULL, "m");
	cairn_key key = key_at(1, 0);
	put_good(store, space, &key, NULL, LENGTH, 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(get_status(store, space, &key, LENGTH), CAIRN_OK);
	assert_int_equal(uses_of(store, space, 1, 0), 5);
	sim_advance(world.sim, SECOND);
	for (uint32_t i = 0; i < 100; i++)
		assert_int_equal(put_chain(store, space, 100 + i, 0, 1, LENGTH, 0), 1);
	assert_int_equal(get_status(store, space, &key, LENGTH), CAIRN_MISS);
	assert_int_equal(uses_of(store, space, 1, 0), 5);
	put_good(store, space, &key, NULL, LENGTH, 0);
	assert_int_equal(uses_of(store, space, 1, 0), 6);
	for (int i = 0; i < 100; i++)
		assert_int_equal(get_status(store, space, &key, LENGTH), CAIRN_OK);
	assert_int_equal(uses_of(store, space, 1, 0), CATALOG_USES_MAX);
	verify(store);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

/* Chains that are asked for again and again, 20 blocks, and 80 blocks between that are put once and never seen again,
 * in memory for 64: LRU never hits, the index learns to refuse the flood. */
static void test_store_policy__index_learns_to_refuse_a_flood(void **state)
{
	(void)state;
	struct world world;
	cairn *store = memory_store(&world, 8 * MIB); /* 64 parts of 100,000 bytes in runs of two pages */
	cairn_space *space = space_named(store, NULL, "m");
	uint32_t late = 0, rounds = 60;
	uint64_t flood = 1000;
	for (uint32_t round = 0; round < rounds; round++) {
		for (uint64_t hot = 0; hot < 4; hot++) {
			uint64_t tokens = match_tokens(store, space, hot, 5);
			late += round < rounds / 4 ? 0 : (uint32_t)tokens;
			if (tokens < 80)
				assert_int_equal(put_chain(store, space, hot, 0, 5, LENGTH, 0), 5);
			sim_advance(world.sim, SECOND);
		}
		for (uint32_t i = 0; i < 20; i++, flood++) {
			assert_int_equal(put_chain(store, space, flood, 0, 4, LENGTH, 0), 4);
			sim_advance(world.sim, SECOND);
		}
	}
	assert_true(late / (80.0 * 4 * (rounds - rounds / 4)) > 0.95);
	verify(store);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_store_policy__uses_are_counted_once_a_request),
		cmocka_unit_test(test_store_policy__uses_are_remembered_after_eviction),
		cmocka_unit_test(test_store_policy__index_learns_to_refuse_a_flood),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
