/* SPDX-License-Identifier: Apache-2.0 */
/* What is counted is what was done: hits, misses and why, lookups, spaces; alarms; and a probe that leaves no trace. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "unit/store_lib.h"

static cairn *own_open(struct world *world)
{
	cairn *store = NULL;
	int error = store_open("s", &world->options, &world->maker, &store);
	if (error)
		fail_msg("open: %d %s", error, cairn_error_text());
	return store;
}

static int keep_info(void *arg, const struct cairn_space_info *info)
{
	struct cairn_space_info *found = arg;
	if (!found->parts || info->parts)
		*found = *info;
	return 0;
}

/* 100 lookups of chains of 10 blocks: 37 whole, 21 of which 4 blocks are there, 42 of nothing; and all gets. */
static void test_count__equals_the_script_when_known(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 1, 128 * MIB, 64 * MIB);
	cairn *store = own_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	for (uint64_t chain = 0; chain < 37; chain++)
		assert_int_equal(put_chain(store, space, chain, 0, 10, 4096, CAIRN_DURABLE_NONE), 10);
	for (uint64_t chain = 37; chain < 58; chain++)
		assert_int_equal(put_chain(store, space, chain, 0, 4, 4096, CAIRN_DURABLE_NONE), 4);
	for (uint64_t chain = 0; chain < 100; chain++)
		(void)match_tokens(store, space, chain, 10);
	uint64_t gets = 0, misses = 0;
	for (uint64_t chain = 0; chain < 100; chain++)
		for (uint64_t i = 0; i < 10; i++) {
			cairn_key key = key_at(chain, i);
			int status = get_status(store, space, &key, 4096);
			gets += status == CAIRN_OK;
			misses += status == CAIRN_MISS;
		}
	struct cairn_stat stat = stat_of(store);
	assert_int_equal(stat.lookups, 100);
	assert_int_equal(stat.lookups_whole, 37);
	assert_int_equal(stat.lookups_part, 21);
	assert_int_equal(stat.lookup_tokens, 100 * 10 * 16);
	assert_int_equal(stat.found_tokens, (37 * 10 + 21 * 4) * 16);
	assert_int_equal(stat.found_bytes[CAIRN_TIER_MEMORY], (37 * 10 + 21 * 4) * 4096);
	assert_int_equal(gets, 37 * 10 + 21 * 4);
	assert_int_equal(stat.tier[CAIRN_TIER_MEMORY].hits, gets);
	assert_int_equal(stat.tier[CAIRN_TIER_MEMORY].hit_bytes, gets * 4096);
	assert_int_equal(stat.misses, misses);
	assert_int_equal(stat.misses, 1000 - gets);
	assert_int_equal(stat.misses_why[CAIRN_WHY_NONE], misses);
	struct cairn_space_info info = {0};
	assert_int_equal(cairn_list_spaces(store, keep_info, &info), 1);
	assert_int_equal(info.parts, gets);
	assert_int_equal(info.bytes, gets * 4096);
	assert_int_equal(info.hits[CAIRN_TIER_MEMORY], gets);
	assert_int_equal(info.misses, misses);
	assert_int_equal(info.written_parts, gets);
	entry_verify(store);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

static void test_count__tells_why_when_parts_are_gone(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 2, 32 * MIB, 8 * MIB);
	cairn *store = own_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	cairn_key dropped = key_at(1, 0), never = key_at(2, 0);
	put_good(store, space, &dropped, NULL, 4096, CAIRN_DURABLE_NONE);
	assert_int_equal(cairn_drop(store, space, &dropped, 1), 1);
	for (uint64_t chain = 10; chain < 90; chain++) /* five times what flash holds in all */
		assert_int_equal(put_chain(store, space, chain, 0, 20, 100000, CAIRN_DURABLE_NONE), 20);
	assert_int_equal(get_status(store, space, &dropped, 4096), CAIRN_MISS);
	assert_int_equal(get_status(store, space, &never, 4096), CAIRN_MISS);
	uint64_t evicted = 0;
	for (uint64_t chain = 10; chain < 90; chain++) {
		cairn_key key = key_at(chain, 19);
		if (why(store, space, &key) == CAIRN_WHY_EVICTED)
			evicted += get_status(store, space, &key, 100000) == CAIRN_MISS;
	}
	struct cairn_stat stat = stat_of(store);
	assert_true(evicted > 10);
	assert_int_equal(stat.misses_why[CAIRN_WHY_DROPPED], 1);
	assert_int_equal(stat.misses_why[CAIRN_WHY_NONE], 1);
	assert_int_equal(stat.misses_why[CAIRN_WHY_EVICTED], evicted);
	assert_int_equal(stat.misses, evicted + 2);
	struct cairn_space_info info = {0};
	(void)cairn_list_spaces(store, keep_info, &info);
	assert_true(info.evicted_parts >= evicted);
	assert_true(info.tier_bytes[CAIRN_TIER_MEMORY] <= 8 * MIB && info.tier_bytes[CAIRN_TIER_FLASH] <= 32 * MIB);
	entry_verify(store);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

/* ---- alarms ------------------------------------------------------------------------------------------------------ */

#define MINUTE_NS 60000000000ull

static void write_much(cairn *store, cairn_space *space, uint64_t chain)
{
	assert_int_equal(put_chain(store, space, chain, 0, 40, 100000, CAIRN_DURABLE_NONE), 40);
}

static void test_count__alarms_when_written_and_never_read(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 3, 128 * MIB, 32 * MIB);
	cairn *store = own_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	uint64_t chain = 0;
	for (int minute = 0; minute < 30; minute++, chain++) {
		write_much(store, space, chain); /* 4 MB a minute */
		assert_int_equal(stat_of(store).alarms, 0);
		sim_advance(world.sim, MINUTE_NS);
	}
	assert_int_equal(stat_of(store).alarms, CAIRN_ALARM_WRITE_ONLY);
	assert_string_equal(cairn_alarm_name(stat_of(store).alarms), "write_only");
	sim_advance(world.sim, 600 * MINUTE_NS); /* nothing at all happens: it stands */
	assert_int_equal(stat_of(store).alarms, CAIRN_ALARM_WRITE_ONLY);
	for (uint64_t i = 0; i < 40; i++) {
		cairn_key key = key_at(chain - 1, i);
		assert_int_equal(get_status(store, space, &key, 100000), CAIRN_OK);
	}
	assert_int_equal(stat_of(store).alarms, 0);
	/* Read now and then: more than 1 %. */
	for (int minute = 0; minute < 90; minute++, chain++) {
		cairn_key key = key_at(chain, 0);
		write_much(store, space, chain);
		assert_int_equal(get_status(store, space, &key, 100000), CAIRN_OK);
		sim_advance(world.sim, MINUTE_NS);
		assert_int_equal(stat_of(store).alarms, 0);
	}
	/* Another time. */
	store_alarm_minutes(store, 120);
	assert_int_equal(stat_of(store).alarm_minutes, 120);
	for (int minute = 0; minute < 80; minute++, chain++) { /* and 30 before that, at most, of the samples there are */
		write_much(store, space, chain);
		sim_advance(world.sim, MINUTE_NS);
		assert_int_equal(stat_of(store).alarms, 0);
	}
	sim_advance(world.sim, 45 * MINUTE_NS);
	assert_int_equal(stat_of(store).alarms, CAIRN_ALARM_WRITE_ONLY);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

/* Flash refuses every write, and nobody but the alarm would say so: puts without durability succeed. */
static void test_count__alarms_when_nothing_arrives_in_flash(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 4, 128 * MIB, 16 * MIB);
	cairn *store = own_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	struct sim_faults bad = {.write_error_ppm = 1000000}, good = {0};
	uint64_t chain = 0;
	(void)stat_of(store);
	sim_set_faults(world.sim, NULL, &bad);
	for (int minute = 0; minute < 31; minute++, chain++) {
		write_much(store, space, chain);
		cairn_key key = key_at(chain, 3);
		assert_int_equal(get_status(store, space, &key, 100000), CAIRN_OK); /* so that it is not write-only */
		sim_advance(world.sim, MINUTE_NS);
		if (minute < 29)
			assert_int_equal(stat_of(store).alarms, 0);
	}
	assert_int_equal(stat_of(store).alarms, CAIRN_ALARM_NO_DEMOTION);
	sim_set_faults(world.sim, NULL, &good);
	for (int minute = 0; minute < 10 && stat_of(store).alarms; minute++, chain++) {
		write_much(store, space, chain);
		sim_advance(world.sim, MINUTE_NS);
		world_run(&world, store, 100);
	}
	assert_int_equal(stat_of(store).alarms, 0);
	(void)cairn_close(store);
	world_done(&world);
}

/* ---- probe ------------------------------------------------------------------------------------------------------- */

static void test_count__probe_leaves_nothing_when_repeated(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 5, 128 * MIB, 8 * MIB);
	cairn *store = own_open(&world);
	for (int i = 0; i < 3; i++) /* before anybody has put anything */
		assert_int_equal(store_probe(store, 1000), 0);
	cairn_space *space = space_named(store, "a", "m");
	assert_int_equal(put_chain(store, space, 1, 0, 10, 100000, CAIRN_DURABLE_NONE), 10);
	struct cairn_stat before = stat_of(store);
	for (int i = 0; i < 200; i++)
		assert_int_equal(store_probe(store, 1000), 0);
	assert_int_equal(store_probe_flash(store, 1000), 0);
	struct cairn_stat after = stat_of(store);
	assert_memory_equal(&before.tier[CAIRN_TIER_MEMORY], &after.tier[CAIRN_TIER_MEMORY], sizeof before.tier[0]);
	assert_int_equal(before.misses, after.misses);
	assert_int_equal(before.catalog_entries, after.catalog_entries);
	struct cairn_event events[64];
	long n = cairn_events(store, 0, events, 64);
	for (long i = 0; i < n; i++)
		assert_memory_equal(events[i].space_id.bytes, space->id, 32);
	struct cairn_space_info info = {0};
	assert_int_equal(cairn_list_spaces(store, keep_info, &info), 1);
	entry_verify(store);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

static void test_count__probe_says_so_when_flash_is_stuck_or_fails(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 6, 128 * MIB, 8 * MIB);
	cairn *store = own_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	struct sim_faults stuck = {.slow_ppm = 1000000, .slow_ns_max = 1000000000000ull};
	sim_set_faults(world.sim, NULL, &stuck);
	assert_int_equal(put_chain(store, space, 1, 0, 1, 1000, CAIRN_DURABLE_NONE), 1);
	assert_int_equal(store_probe(store, 1000), 0); /* memory works */
	assert_int_equal(store_probe_flash(store, 1000), CAIRN_E_LATE);
	store_abandon(store);
	world_done(&world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_count__equals_the_script_when_known),
		cmocka_unit_test(test_count__tells_why_when_parts_are_gone),
		cmocka_unit_test(test_count__alarms_when_written_and_never_read),
		cmocka_unit_test(test_count__alarms_when_nothing_arrives_in_flash),
		cmocka_unit_test(test_count__probe_leaves_nothing_when_repeated),
		cmocka_unit_test(test_count__probe_says_so_when_flash_is_stuck_or_fails),
	};
	return cmocka_run_group_tests_name("count", tests, NULL, NULL);
}
