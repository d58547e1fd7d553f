/* SPDX-License-Identifier: Apache-2.0 */
/* src/tier/flash.c, commit.c: commit groups, their time, footers, sealing, what a failing device does to them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/store_lib.h"

static void test_flash__commits_lone_put_within_5_ms(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 1, 32 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	cairn_key first = key_at(999, 0);
	put_good(store, space, &first, NULL, 1000, CAIRN_DURABLE_FLASH); /* opens the segment */
	for (uint32_t i = 0; i < 50; i++) {
		cairn_key key = key_at(i, 0);
		uint64_t start = clock_mono_ns(store->clock);
		put_good(store, space, &key, NULL, 100000, CAIRN_DURABLE_FLASH);
		/* One write and one flush of at most 0.2 ms each on this disk, and the ledger's where a segment begins. */
		assert_true(clock_mono_ns(store->clock) - start < 5000000);
		sim_advance(world.sim, 20000000);
	}
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

static void test_flash__gathers_batch_into_groups(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 2, 128 * MIB, 16 * MIB);
	world.options.segment_bytes = 16 * MIB;
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	struct cairn_stat before = stat_of(store);
	assert_int_equal(put_chain(store, space, 1, 0, 126, 4096, CAIRN_DURABLE_FLASH), 126);
	struct cairn_stat after = stat_of(store);
	uint64_t groups = after.device[0].groups - before.device[0].groups;
	uint64_t flushes = after.device[0].flushes - before.device[0].flushes;
	assert_true(groups >= 2 && groups <= 4); /* 63 parts each at most */
	assert_true(flushes <= 4);
	uint64_t written = after.device[0].written_bytes - before.device[0].written_bytes;
	assert_true(written >= 126 * 4096 && written <= 126 * 4096 + groups * 4 * FMT_PAGE);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

/* Puts with durability none are flushed soon all the same. */
static void test_flash__flushes_what_was_promised_nothing_within_seconds(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 3, 32 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	assert_int_equal(put_chain(store, space, 1, 0, 5, 50000, CAIRN_DURABLE_NONE), 5);
	world_run(&world, store, 3000);
	store = world_reopen_dead(&world, store, 1);
	assert_int_equal(match_tokens(store, space_named(store, NULL, "m"), 1, 5), 80);
	store_abandon(store);
	world_done(&world);
}

/* Twelve tenants write in turn: there are eight open segments; the idlest is sealed short, and all is found again. */
static void test_flash__seals_idlest_when_tenants_are_many(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 4, 64 * MIB, 16 * MIB);
	cairn *store = world_open(&world);
	char tenant[16];
	for (int round = 0; round < 3; round++)
		for (uint64_t t = 0; t < 12; t++) {
			snprintf(tenant, sizeof tenant, "t%llu", (unsigned long long)t);
			cairn_space *space = space_named(store, tenant, "m");
			assert_int_equal(put_chain(store, space, 10 * t + (uint64_t)round, 0, 3, 20000, CAIRN_DURABLE_FLASH), 3);
			assert_true(stat_of(store).device[0].open_segments <= 8);
		}
	verify(store);
	store = world_reopen_dead(&world, store, 1);
	for (int round = 0; round < 3; round++)
		for (uint64_t t = 0; t < 12; t++) {
			snprintf(tenant, sizeof tenant, "t%llu", (unsigned long long)t);
			assert_int_equal(match_tokens(store, space_named(store, tenant, "m"), 10 * t + (uint64_t)round, 3), 48);
		}
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

/* Small parts: a segment is full of entries, or of bytes, whichever comes first; its footer holds all of them. */
static void test_flash__seals_segments_of_any_part_size(void **state)
{
	(void)state;
	static const uint32_t lengths[] = {1, 4095, 4096, 4097, 100001, 524288};
	for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
		struct world world;
		world_init(&world, 5 + i, 32 * MIB, 8 * MIB);
		cairn *store = world_open(&world);
		cairn_space *space = space_named(store, NULL, "m");
		uint32_t n = lengths[i] < 5000 ? 1200 : 5 * (uint32_t)MIB / lengths[i];
		for (uint32_t from = 0; from < n; from += 100)
			assert_int_equal(put_chain(store, space, 1, from, n - from < 100 ? n - from : 100, lengths[i], 2),
			                 n - from < 100 ? n - from : 100);
		struct cairn_stat stat = stat_of(store);
		assert_true(stat.device[0].used_bytes >= 3 * MIB);
		for (int round = 0; round < 2; round++) {
			store = round ? world_reopen(&world, store) : world_reopen_dead(&world, store, 1);
			space = space_named(store, NULL, "m");
			assert_int_equal(match_tokens(store, space, 1, n), n * 16);
		}
		cairn_key key = key_at(1, n / 2);
		assert_int_equal(get_status(store, space, &key, lengths[i]), CAIRN_OK);
		assert_int_equal(cairn_close(store), 0);
		world_done(&world);
	}
}

/* A flush that fails once in a while, among puts that were promised nothing: whatever is found afterwards is whole. */
static void test_flash__withdraws_groups_when_flush_fails(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 12; seed++) {
		struct world world;
		world_init(&world, seed, 64 * MIB, 8 * MIB);
		cairn *store = world_open(&world);
		cairn_space *space = space_named(store, NULL, "m");
		assert_int_equal(put_chain(store, space, 999, 0, 5, 50000, CAIRN_DURABLE_FLASH), 5);
		struct sim_faults faults = {.flush_error_ppm = 200000, .write_error_ppm = 50000};
		sim_set_faults(world.sim, NULL, &faults);
		for (uint64_t chain = 0; chain < 40; chain++) {
			(void)put_chain(store, space, chain, 0, 5, 50000, chain % 4 ? CAIRN_DURABLE_NONE : CAIRN_DURABLE_FLASH);
			world_run(&world, store, 30);
			verify(store);
		}
		struct cairn_stat stat = stat_of(store);
		assert_true(stat.device[0].failed_flushes > 0 || stat.tier[CAIRN_TIER_FLASH].errors > 0);
		faults = (struct sim_faults){0};
		sim_set_faults(world.sim, NULL, &faults);
		for (int round = 0; round < 3; round++) {
			store = world_reopen_dead(&world, store, 1);
			space = space_named(store, NULL, "m");
			assert_int_equal(match_tokens(store, space, 999, 5), 80);
			for (uint64_t chain = 0; chain < 40; chain++)
				for (uint32_t i = 0; i < 5; i++) {
					cairn_key key = key_at(chain, i);
					int status = get_status(store, space, &key, 50000);
					assert_true(status == CAIRN_OK || status == CAIRN_MISS); /* visible means good */
				}
			assert_int_equal(put_chain(store, space, 500 + (uint64_t)round, 0, 5, 50000, CAIRN_DURABLE_FLASH), 5);
		}
		store_abandon(store);
		world_done(&world);
	}
}

/* Field bug 2: the third of five writes fails. Nothing of it is there in any tier afterwards but what is whole. */
static void test_flash__leaves_nothing_when_one_write_fails(void **state)
{
	(void)state;
	for (uint64_t at = 1; at <= 30; at++) {
		struct world world;
		world_init(&world, at, 32 * MIB, 8 * MIB);
		cairn *store = world_open(&world);
		cairn_space *space = space_named(store, NULL, "m");
		uint8_t promised[5];
		sim_fail_at(world.sim, at, 0);
		for (uint32_t i = 0; i < 5; i++) {
			cairn_key key = key_at(i, 0);
			promised[i] = put_status(store, space, &key, NULL, 50000, CAIRN_DURABLE_FLASH) == CAIRN_OK;
			assert_int_equal(get_status(store, space, &key, 50000), CAIRN_OK); /* from memory at least */
		}
		sim_fail_at(world.sim, 0, 0);
		store = world_reopen_dead(&world, store, 1);
		space = space_named(store, NULL, "m");
		for (uint32_t i = 0; i < 5; i++) {
			cairn_key key = key_at(i, 0);
			int status = get_status(store, space, &key, 50000);
			assert_true(status == CAIRN_OK || (status == CAIRN_MISS && !promised[i]));
		}
		store_abandon(store);
		world_done(&world);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_flash__commits_lone_put_within_5_ms),
		cmocka_unit_test(test_flash__gathers_batch_into_groups),
		cmocka_unit_test(test_flash__flushes_what_was_promised_nothing_within_seconds),
		cmocka_unit_test(test_flash__seals_idlest_when_tenants_are_many),
		cmocka_unit_test(test_flash__seals_segments_of_any_part_size),
		cmocka_unit_test(test_flash__withdraws_groups_when_flush_fails),
		cmocka_unit_test(test_flash__leaves_nothing_when_one_write_fails),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
