/* SPDX-License-Identifier: Apache-2.0 */
/* Faults of sessions (tests/faults/sessions.txt) that show only at an edge: exact quotas, crashes inside of a save. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/store_lib.h"

enum { BLOCKS = 20, LENGTH = 20000 };

struct saving {
	cairn_key keys[BLOCKS];
	struct cairn_chain chain;
	struct cairn_save save;
};

static struct cairn_save *save_of(struct saving *saving, const char *name, uint64_t chain, uint32_t n)
{
	memset(saving, 0, sizeof *saving);
	for (uint32_t i = 0; i < n; i++)
		saving->keys[i] = key_at(chain, i);
	saving->chain = (struct cairn_chain){0, saving->keys, n};
	saving->save = (struct cairn_save){.size = sizeof saving->save, .name = {.name = name}, .chains = &saving->chain,
	                                   .nchains = 1, .tokens = n * 16};
	return &saving->save;
}

static int resume_status(cairn *store, const char *name, uint64_t *ret_epoch)
{
	struct cairn_session_name of = {.name = name};
	struct cairn_session_info info;
	cairn_session *session;
	int status = cairn_session_resume(store, &of, &session);
	if (status)
		return status;
	cairn_session_get_info(session, &info);
	*ret_epoch = info.epoch;
	cairn_session_free(session);
	return 0;
}

static uint32_t manifests_of(cairn *store)
{
	uint32_t n = 0;
	for (uint32_t entry = catalog_next(store->catalog, 0); entry; entry = catalog_next(store->catalog, entry))
		n += (catalog_at(store->catalog, entry)->flags & CATALOG_MANIFEST) != 0;
	return n;
}

/* The power goes as soon as a save has returned: the record's flush need not have covered the manifest. */
static void test_faults_session__is_there_when_power_goes_after_save(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 30; seed++) {
		struct world world;
		struct saving saving;
		uint64_t epoch;
		world_init(&world, seed, 16 * MIB, 8 * MIB);
		cairn *store = world_open(&world);
		cairn_space *space = space_named(store, NULL, "m");
		put_chain(store, space, 1, 0, 3, LENGTH, CAIRN_DURABLE_FLASH);
		assert_int_equal(cairn_session_save(store, space, save_of(&saving, "s", 1, 3)), 0);
		store = world_reopen_dead(&world, store, 1);
		assert_int_equal(resume_status(store, "s", &epoch), 0);
		store_abandon(store);
		world_done(&world);
	}
}

/* Blocks that were not worth a write are worth one when a session names them. */
static void test_faults_session__has_its_blocks_when_they_were_in_memory_alone(void **state)
{
	(void)state;
	struct world world;
	struct saving saving;
	uint64_t epoch;
	world_init(&world, 1, 16 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	cairn_key unknown = key_at(9, 9), key = key_at(1, 0);
	put_good(store, space, &key, &unknown, LENGTH, CAIRN_DURABLE_NONE);
	assert_int_equal(cairn_sync(store), 0);
	assert_int_equal(stat_of(store).tier[CAIRN_TIER_FLASH].parts, 0);
	assert_int_equal(cairn_session_save(store, space, save_of(&saving, "s", 1, 1)), 0);
	store = world_reopen_dead(&world, store, 1);
	space = space_named(store, NULL, "m");
	assert_int_equal(resume_status(store, "s", &epoch), 0);
	assert_int_equal(get_status(store, space, &key, LENGTH), CAIRN_OK);
	store_abandon(store);
	world_done(&world);
}

static void test_faults_session__is_refused_when_block_is_missing(void **state)
{
	(void)state;
	static const uint32_t durabilities[] = {CAIRN_DURABLE_NONE, CAIRN_DURABLE_FLASH};
	struct world world;
	struct saving saving;
	uint64_t epoch;
	world_init(&world, 1, 16 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	put_chain(store, space, 1, 0, 3, LENGTH, CAIRN_DURABLE_NONE);
	for (int i = 0; i < 2; i++) {
		struct cairn_save *save = save_of(&saving, "s", 1, 4);
		save->durability = durabilities[i];
		assert_int_equal(cairn_session_save(store, space, save), CAIRN_E_NOENT);
		assert_int_equal(resume_status(store, "s", &epoch), CAIRN_E_NOENT);
	}
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

static void test_faults_session__leaves_no_manifest_when_replaced(void **state)
{
	(void)state;
	struct world world;
	struct saving saving;
	world_init(&world, 1, 16 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	put_chain(store, space, 1, 0, 3, LENGTH, CAIRN_DURABLE_FLASH);
	for (int i = 0; i < 5; i++) {
		assert_int_equal(cairn_session_save(store, space, save_of(&saving, "s", 1, 3)), 0);
		assert_int_equal(manifests_of(store), 1);
		assert_int_equal(stat_of(store).tier[CAIRN_TIER_FLASH].parts, 4);
	}
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

/* Dies at each I/O of a second save: there is one save, the old or the new, and one manifest. */
static void test_faults_session__is_old_or_new_when_killed_in_a_save(void **state)
{
	(void)state;
	int olds = 0, news = 0;
	for (uint64_t n = 1; n <= 12; n++)
		for (uint64_t seed = 1; seed <= 3; seed++) {
			struct world world;
			struct saving saving;
			uint64_t epoch = 0;
			world_init(&world, seed, 16 * MIB, 8 * MIB);
			sim_dead_fails(world.sim, 1);
			cairn *store = world_open(&world);
			cairn_space *space = space_named(store, NULL, "m");
			put_chain(store, space, 1, 0, 3, LENGTH, CAIRN_DURABLE_FLASH);
			assert_int_equal(cairn_session_save(store, space, save_of(&saving, "s", 1, 3)), 0);
			sim_crash_at(world.sim, n, 1);
			int status = cairn_session_save(store, space, save_of(&saving, "s", 1, 3));
			sim_crash_at(world.sim, 0, 0);
			store = world_reopen_dead(&world, store, 1);
			assert_int_equal(resume_status(store, "s", &epoch), 0);
			assert_true(epoch == 2 || (epoch == 1 && status));
			olds += epoch == 1;
			news += epoch == 2;
			assert_int_equal(manifests_of(store), 1);
			verify(store);
			store_abandon(store);
			world_done(&world);
		}
	assert_true(olds && news);
}

/* A share of exactly what is pinned is enough for it, and for no byte more. */
static void test_faults_session__may_pin_all_of_its_share(void **state)
{
	(void)state;
	const uint64_t budget = 16 * MIB, share = budget / 100 * 50;
	const uint32_t length = (uint32_t)(share / BLOCKS);
	struct world world;
	struct saving saving;
	assert_int_equal(length * (uint64_t)BLOCKS, share);
	world_init(&world, 1, budget, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	assert_int_equal(put_chain(store, space, 1, 0, BLOCKS, length, CAIRN_DURABLE_FLASH), BLOCKS);
	assert_int_equal(put_chain(store, space, 2, 0, 1, 1, CAIRN_DURABLE_FLASH), 1);
	struct cairn_save *save = save_of(&saving, "all", 1, BLOCKS);
	save->pin = 1;
	assert_int_equal(cairn_session_save(store, space, save), 0);
	save = save_of(&saving, "more", 2, 1);
	save->pin = 1;
	assert_int_equal(cairn_session_save(store, space, save), CAIRN_E_QUOTA);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

static void test_faults_session__stays_pinned_when_opened_anew(void **state)
{
	(void)state;
	struct world world;
	struct saving saving;
	world_init(&world, 1, 16 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	put_chain(store, space, 1, 0, BLOCKS, LENGTH, CAIRN_DURABLE_FLASH);
	struct cairn_save *save = save_of(&saving, "s", 1, BLOCKS);
	save->pin = 1;
	assert_int_equal(cairn_session_save(store, space, save), 0);
	store = world_reopen(&world, store);
	space = space_named(store, NULL, "m");
	for (uint64_t i = 0; i < 300; i++)
		put_chain(store, space, 100 + i, 0, 1, 100000, CAIRN_DURABLE_FLASH);
	assert_int_equal(match_tokens(store, space, 1, BLOCKS), BLOCKS * 16);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_faults_session__is_there_when_power_goes_after_save),
		cmocka_unit_test(test_faults_session__has_its_blocks_when_they_were_in_memory_alone),
		cmocka_unit_test(test_faults_session__is_refused_when_block_is_missing),
		cmocka_unit_test(test_faults_session__leaves_no_manifest_when_replaced),
		cmocka_unit_test(test_faults_session__is_old_or_new_when_killed_in_a_save),
		cmocka_unit_test(test_faults_session__may_pin_all_of_its_share),
		cmocka_unit_test(test_faults_session__stays_pinned_when_opened_anew),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
