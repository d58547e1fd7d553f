/* SPDX-License-Identifier: Apache-2.0 */
/* The policy inside the store: what counts as a use, what is remembered, hints, writes to flash within a budget. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "store/leave.h"
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

/* Parts of a chain that can be read now. */
static uint32_t there(cairn *store, const cairn_space *space, uint64_t chain, uint32_t n)
{
	uint32_t found = 0;
	for (uint32_t i = 0; i < n; i++) {
		cairn_key key = key_at(chain, i);
		uint32_t reason = why(store, space, &key);
		found += reason == CAIRN_WHY_PRESENT;
	}
	return found;
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

/* More blocks than are worked on at once, in one get: the end of the chain still goes before its head. */
static void test_store_policy__end_goes_first_after_a_long_get(void **state)
{
	(void)state;
	enum { N = 300, BYTES = 20000 };
	struct world world;
	cairn *store = memory_store(&world, 16 * MIB);
	cairn_space *space = space_named(store, NULL, "m");
	static cairn_key keys[N];
	static struct cairn_item items[N];
	static struct cairn_buf bufs[N];
	static uint8_t bytes[BYTES];
	assert_int_equal(put_chain(store, space, 1, 0, N, BYTES, 0), N);
	for (uint32_t i = 0; i < N; i++) {
		keys[i] = key_at(1, i);
		bufs[i] = cairn_buf_of(bytes, BYTES);
		items[i] = (struct cairn_item){.key = keys[i], .bufs = &bufs[i], .nbufs = 1};
	}
	sim_advance(world.sim, SECOND);
	assert_int_equal(cairn_get(store, space, items, N, NULL), N);
	sim_advance(world.sim, SECOND);
	for (uint64_t other = 10; there(store, space, 1, N) > N - 50; other++)
		assert_int_equal(put_chain(store, space, other, 0, 1, BYTES, 0), 1);
	assert_int_equal(match_tokens(store, space, 1, N), there(store, space, 1, N) * 16);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

/* ---- writes to flash --------------------------------------------------------------------------------------------- */

static cairn *budget_store(struct world *world, uint64_t flash_bytes, uint64_t bytes_day)
{
	world_init(world, 2, flash_bytes, 8 * MIB);
	world->options.flash_write_bytes_day = bytes_day;
	return world_open(world);
}

static void test_store_policy__parts_go_down_when_they_leave_memory(void **state)
{
	(void)state;
	struct world world;
	cairn *store = budget_store(&world, 64 * MIB, 1ull << 50);
	cairn_space *space = space_named(store, NULL, "m");
	for (uint64_t chain = 0; chain < 3; chain++)
		assert_int_equal(put_chain(store, space, chain, 0, 5, LENGTH, 0), 5);
	world_run(&world, store, 1000);
	assert_int_equal(stat_of(store).tier[CAIRN_TIER_FLASH].written_parts, 0); /* memory has room */
	for (uint64_t chain = 3; chain < 60; chain++) {
		assert_int_equal(put_chain(store, space, chain, 0, 5, LENGTH, 0), 5);
		world_run(&world, store, 100);
	}
	struct cairn_stat stat = stat_of(store);
	assert_int_equal(stat.flash_refused_parts, 0);
	assert_in_range(stat.tier[CAIRN_TIER_FLASH].written_parts, 300 - 64, 299);
	for (uint64_t chain = 0; chain < 60; chain++)
		assert_int_equal(match_tokens(store, space, chain, 5), 5 * 16);
	verify(store);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

/* 2 MiB can be saved up, and next to nothing comes in: some chains are in flash, the others are not; none in part. */
static void test_store_policy__chains_go_down_whole_when_the_budget_is_short(void **state)
{
	(void)state;
	struct world world;
	cairn *store = budget_store(&world, 64 * MIB, 86400 * 20000);
	cairn_space *space = space_named(store, NULL, "m");
	uint32_t whole = 0, none = 0, n = 300;
	for (uint64_t chain = 0; chain < n; chain++) {
		assert_int_equal(put_chain(store, space, chain, 0, 5, LENGTH, 0), 5);
		world_run(&world, store, 1000);
	}
	for (uint64_t chain = 0; chain < n - 20; chain++) {
		uint32_t found = there(store, space, chain, 5);
		whole += found == 5;
		none += found == 0;
	}
	struct cairn_stat stat = stat_of(store);
	print_message("%u whole, %u gone, %llu refused\n", whole, none, (unsigned long long)stat.flash_refused_parts);
	assert_true(whole + none >= n - 20 - 1); /* the one that is just leaving */
	assert_true(whole > 10 && none > 100);
	assert_true(stat.flash_refused_parts >= 5ull * none);
	assert_int_equal(stat.flash_refused_bytes, stat.flash_refused_parts * LENGTH);
	/* 300 s at 20 kB/s, and what was saved up. */
	assert_true(stat.tier[CAIRN_TIER_FLASH].written_bytes < 300 * 20000 + 2 * MIB + 5 * LENGTH);
	verify(store);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

/* A durable part is of no use after a restart without what is before it in its chain. */
static void test_store_policy__heads_go_down_with_a_durable_part(void **state)
{
	(void)state;
	struct world world;
	cairn *store = budget_store(&world, 64 * MIB, 1);
	cairn_space *space = space_named(store, NULL, "m");
	for (uint32_t from = 0; from < 40; from += 10)
		assert_int_equal(put_chain(store, space, 1, from, 10, 10000, 0), 10);
	assert_int_equal(put_chain(store, space, 1, 40, 2, 10000, CAIRN_DURABLE_FLASH), 2);
	assert_int_equal(put_chain(store, space, 2, 0, 3, 10000, 0), 3);
	store = world_reopen_dead(&world, store, 1);
	space = space_named(store, NULL, "m");
	world_run(&world, store, 1000); /* orphans would go */
	assert_int_equal(match_tokens(store, space, 1, 42), 42 * 16);
	assert_int_equal(match_tokens(store, space, 2, 3), 0); /* promised nothing */
	verify(store);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

/* ---- before it ends ---------------------------------------------------------------------------------------------- */

static void leave(cairn *store, uint64_t ms, struct leave_report *ret_report)
{
	struct leave_limit limit = {.deadline_ns = clock_mono_ns(served_inside(store)->clock) + ms * 1000000};
	assert_int_equal(store_leave(served_inside(store), &limit, ret_report), 0);
}

/* Sixteen chains of 20, each younger than the one before; in less than the minute after which the index would know
 * better. */
static cairn *leave_store(struct world *world)
{
	cairn *store = budget_store(world, 64 * MIB, 1);
	cairn_space *space = space_named(store, NULL, "m");
	for (uint64_t chain = 0; chain < 16; chain++) {
		assert_int_equal(put_chain(store, space, chain, 0, 20, 15000, 0), 20);
		world_run(world, store, 2500);
	}
	return store;
}

static void test_store_policy__memory_goes_down_when_the_store_ends(void **state)
{
	(void)state;
	struct world world;
	struct leave_report report;
	cairn *store = leave_store(&world);
	assert_int_equal(stat_of(store).tier[CAIRN_TIER_FLASH].written_parts, 0);
	leave(store, 60000, &report);
	assert_int_equal(report.parts, 320);
	assert_int_equal(report.bytes, 320 * 15000);
	assert_int_equal(report.left, 0);
	store = world_reopen(&world, store);
	cairn_space *space = space_named(store, NULL, "m");
	world_run(&world, store, 1000); /* orphans would go */
	for (uint64_t chain = 0; chain < 16; chain++)
		assert_int_equal(match_tokens(store, space, chain, 20), 20 * 16);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

/* Memory that was let go of since leaves gaps among its slots. */
static void test_store_policy__memory_goes_down_when_some_of_it_was_dropped(void **state)
{
	(void)state;
	struct world world;
	struct leave_report report;
	cairn *store = leave_store(&world);
	cairn_key keys[20];
	for (uint32_t i = 0; i < 20; i++)
		keys[i] = key_at(0, i);
	assert_int_equal(cairn_drop(store, space_named(store, NULL, "m"), keys, 20), 20);
	leave(store, 60000, &report);
	assert_int_equal(report.parts, 300);
	assert_int_equal(report.left, 0);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

/* Less time than it takes: what is there afterwards are the chains worth most, whole but for one; the youngest, as
 * nothing else was learned. */
static void test_store_policy__best_chains_go_down_when_time_is_short(void **state)
{
	(void)state;
	struct world world;
	struct leave_report report;
	cairn *store = leave_store(&world);
	/* Each write takes its time: a second for the lot. */
	sim_set_faults(world.sim, NULL, &(struct sim_faults){.slow_ppm = 1000000, .slow_ns_max = 20000000});
	struct leave_limit limit = {.deadline_ns = clock_mono_ns(served_inside(store)->clock)};
	assert_int_equal(store_leave(served_inside(store), &limit, &report), 0);
	assert_int_equal(report.parts, 0);
	leave(store, 100, &report);
	print_message("%llu went, %llu are left\n", (unsigned long long)report.parts, (unsigned long long)report.left);
	assert_in_range(report.parts, 30, 290);
	assert_int_equal(report.parts + report.left, 320);
	sim_set_faults(world.sim, NULL, &(struct sim_faults){0});
	store = world_reopen(&world, store);
	cairn_space *space = space_named(store, NULL, "m");
	world_run(&world, store, 1000);
	uint32_t broken = 0, missing = 0;
	for (uint64_t chain = 16; chain-- > 0;) {
		uint64_t tokens = match_tokens(store, space, chain, 20);
		assert_true(!tokens || !missing); /* none is there that is worth less than one that is not */
		broken += tokens && tokens < 20 * 16;
		missing |= tokens < 20 * 16;
	}
	assert_true(broken <= 1 && missing);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

static void test_store_policy__paused_chain_goes_down_whatever_the_budget(void **state)
{
	(void)state;
	struct world world;
	cairn *store = budget_store(&world, 64 * MIB, 1);
	cairn_space *space = space_named(store, NULL, "m");
	cairn_key keys[200];
	for (uint32_t i = 0; i < 200; i++)
		keys[i] = key_at(1, i);
	struct cairn_chain chain = {0, keys, 200};
	for (uint64_t other = 1; other < 3; other++)
		assert_int_equal(put_chain(store, space, other, 0, 200, 10000, 0), 200);
	assert_int_equal(cairn_hint(store, space, &chain, CAIRN_HINT_CLOSE), 0);
	assert_int_equal(cairn_hint(store, space, &chain, CAIRN_HINT_PAUSE), 0); /* thought better of it */
	world_run(&world, store, 1000);
	assert_int_equal(cairn_sync(store), 0);
	assert_int_equal(stat_of(store).tier[CAIRN_TIER_FLASH].written_parts, 200);
	store = world_reopen_dead(&world, store, 1);
	space = space_named(store, NULL, "m");
	assert_int_equal(match_tokens(store, space, 1, 200), 200 * 16);
	assert_int_equal(match_tokens(store, space, 2, 200), 0);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

/* ---- reading on -------------------------------------------------------------------------------------------------- */

static uint32_t in_memory(cairn *store, const cairn_space *space, uint64_t chain, uint32_t from, uint32_t to)
{
	uint32_t found = 0;
	cairn *own = served_inside(store);
	uint32_t number = served_space(store, space)->number;
	pthread_mutex_lock(&own->lock);
	for (uint32_t i = from; i < to; i++) {
		uint32_t entry = catalog_find(own->catalog, number, key_at(chain, i).bytes, 0);
		found += entry && catalog_at(own->catalog, entry)->slot;
	}
	pthread_mutex_unlock(&own->lock);
	return found;
}

/* An engine that matches a chain that is in flash, and then asks for its first block alone. */
static cairn_match *first_of_chain(cairn *store, const cairn_space *space, uint32_t n)
{
	static cairn_key keys[64];
	for (uint32_t i = 0; i < n; i++)
		keys[i] = key_at(1, i);
	struct cairn_chain of = {0, keys, n};
	cairn_match *match;
	assert_int_equal(cairn_match_take(store, space, &of, 1, 0, 0, &match), 0);
	assert_int_equal(in_memory(store, space, 1, 0, n), 0);
	assert_int_equal(get_status(store, space, &keys[0], 10000), CAIRN_OK);
	return match;
}

static cairn *chain_in_flash(struct world *world, cairn_space **ret_space)
{
	world_init(world, 3, 64 * MIB, 8 * MIB);
	cairn *store = world_open(world);
	*ret_space = space_named(store, NULL, "m");
	assert_int_equal(put_chain(store, *ret_space, 1, 0, 64, 10000, CAIRN_DURABLE_FLASH), 64);
	store = world_reopen(world, store);
	*ret_space = space_named(store, NULL, "m");
	return store;
}

static void test_store_policy__reads_on_along_a_match_when_asked_block_by_block(void **state)
{
	(void)state;
	struct world world;
	cairn_space *space;
	cairn *store = chain_in_flash(&world, &space);
	cairn_match *match = first_of_chain(store, space, 64);
	world_run(&world, store, 100);
	/* A sixteenth of memory: 52 parts of 10,000 bytes, and no more. */
	assert_int_equal(in_memory(store, space, 1, 1, 64), 52);
	assert_int_equal(in_memory(store, space, 1, 1, 53), 52);
	uint64_t hits = stat_of(store).tier[CAIRN_TIER_MEMORY].hits;
	for (uint32_t i = 1; i < 53; i++) {
		cairn_key key = key_at(1, i);
		assert_int_equal(get_status(store, space, &key, 10000), CAIRN_OK);
	}
	assert_int_equal(stat_of(store).tier[CAIRN_TIER_MEMORY].hits, hits + 52);
	cairn_match_release(store, match);
	verify(store);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

static void test_store_policy__reads_on_no_further_than_the_first_miss(void **state)
{
	(void)state;
	struct world world;
	cairn_space *space;
	cairn *store = chain_in_flash(&world, &space);
	cairn_key keys[64], lost = key_at(1, 5);
	for (uint32_t i = 0; i < 64; i++)
		keys[i] = key_at(1, i);
	/* Without a match nothing is known of what comes next. */
	assert_int_equal(get_status(store, space, &keys[30], 10000), CAIRN_OK);
	world_run(&world, store, 100);
	assert_int_equal(in_memory(store, space, 1, 0, 64), 1);
	struct cairn_chain of = {0, keys, 20};
	cairn_match *match;
	assert_int_equal(cairn_match_take(store, space, &of, 1, 0, 0, &match), 0);
	assert_int_equal(cairn_drop(store, space, &lost, 1), 1);
	assert_int_equal(get_status(store, space, &keys[0], 10000), CAIRN_OK);
	cairn *own = served_inside(store);
	uint32_t number = served_space(store, space)->number;
	pthread_mutex_lock(&own->lock);
	uint32_t entry = catalog_find(own->catalog, number, keys[6].bytes, 0);
	int there_after = entry && catalog_at(own->catalog, entry)->slot;
	pthread_mutex_unlock(&own->lock);
	assert_int_equal(in_memory(store, space, 1, 1, 5), 4);
	assert_false(there_after);
	cairn_match_release(store, match);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

static void test_store_policy__reads_on_without_evicting_what_is_younger(void **state)
{
	(void)state;
	struct world world;
	cairn_space *space;
	cairn *store = chain_in_flash(&world, &space);
	static cairn_key keys[64];
	for (uint32_t i = 0; i < 64; i++)
		keys[i] = key_at(1, i);
	struct cairn_chain of = {0, keys, 64};
	cairn_match *match;
	assert_int_equal(cairn_match_take(store, space, &of, 1, 0, 0, &match), 0);
	sim_advance(world.sim, SECOND);
	for (uint64_t other = 10; other < 90; other++) /* memory is full of what was put since */
		assert_int_equal(put_chain(store, space, other, 0, 1, LENGTH, 0), 1);
	world_run(&world, store, 1000);
	uint64_t evicted = stat_of(store).tier[CAIRN_TIER_MEMORY].evicted_parts;
	assert_int_equal(get_status(store, space, &keys[0], 10000), CAIRN_OK);
	world_run(&world, store, 100);
	uint32_t room = in_memory(store, space, 1, 1, 64); /* what shares the page that the first block has opened */
	assert_in_range(room, 0, 15);
	assert_int_equal(stat_of(store).tier[CAIRN_TIER_MEMORY].evicted_parts, evicted + 1);
	cairn_match_release(store, match);
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
		cmocka_unit_test(test_store_policy__end_goes_first_after_a_long_get),
		cmocka_unit_test(test_store_policy__parts_go_down_when_they_leave_memory),
		cmocka_unit_test(test_store_policy__chains_go_down_whole_when_the_budget_is_short),
		cmocka_unit_test(test_store_policy__heads_go_down_with_a_durable_part),
		cmocka_unit_test(test_store_policy__memory_goes_down_when_the_store_ends),
		cmocka_unit_test(test_store_policy__memory_goes_down_when_some_of_it_was_dropped),
		cmocka_unit_test(test_store_policy__best_chains_go_down_when_time_is_short),
		cmocka_unit_test(test_store_policy__paused_chain_goes_down_whatever_the_budget),
		cmocka_unit_test(test_store_policy__reads_on_along_a_match_when_asked_block_by_block),
		cmocka_unit_test(test_store_policy__reads_on_no_further_than_the_first_miss),
		cmocka_unit_test(test_store_policy__reads_on_without_evicting_what_is_younger),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
