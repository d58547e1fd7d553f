/* SPDX-License-Identifier: Apache-2.0 */
/* src/store/decide.c, reconcile.c and space.c: drops, several devices, explanations, events, lists. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/store_lib.h"

enum {
	LENGTH = 20000
};

static void world_two(struct world *world, uint64_t seed)
{
	world_init(world, seed, 24 * MIB, 8 * MIB);
	world->flash[1] = (struct cairn_flash){.path = "d1", .budget_bytes = 24 * MIB};
	world->options.nflash = 2;
}

static void test_store_drop__stays_dropped_when_machine_dies(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 6; seed++) {
		struct world world;
		world_init(&world, seed, 24 * MIB, 8 * MIB);
		cairn *store = world_open(&world);
		cairn_space *a = space_named(store, "t1", "a"), *b = space_named(store, "t1", "b"),
					*c = space_named(store, "t2", "c");
		cairn_space *all[] = {a, b, c};
		for (int s = 0; s < 3; s++)
			assert_int_equal(put_chain(store, all[s], 1, 0, 40, LENGTH, seed % 2 ? CAIRN_DURABLE_FLASH : 0), 40);
		cairn_key keys[40];
		for (uint32_t i = 0; i < 40; i++)
			keys[i] = key_at(1, i);
		/* Twenty keys from the end of one chain, a whole space, and again with nothing there. */
		assert_int_equal(cairn_drop(store, a, keys + 20, 20), 20);
		assert_int_equal(stat_of(store).dropped_parts, 20);
		assert_int_equal(cairn_drop(store, a, keys + 20, 20), 0);
		cairn_digest id;
		cairn_space_get_id(b, &id);
		assert_int_equal(cairn_drop_space(store, &id), 40);
		assert_int_equal(stat_of(store).dropped_parts, 60);
		assert_int_equal(cairn_drop_space(store, &id), 0);
		assert_int_equal(cairn_drop_tenant(store, "nobody"), 0);
		assert_int_equal(why(store, a, &keys[20]), CAIRN_WHY_DROPPED);
		assert_int_equal(why(store, b, &keys[0]), CAIRN_WHY_DROPPED);
		assert_int_equal(why(store, c, &keys[0]), CAIRN_WHY_PRESENT);
		/* A put after it is a new part. */
		put_good(store, b, &keys[0], NULL, LENGTH, CAIRN_DURABLE_FLASH);
		put_good(store, a, &keys[20], &keys[19], LENGTH, CAIRN_DURABLE_FLASH);
		for (int round = 0; round < 3; round++) {
			store = round == 1 ? world_reopen(&world, store) : world_reopen_dead(&world, store, 1);
			a = space_named(store, "t1", "a");
			b = space_named(store, "t1", "b");
			c = space_named(store, "t2", "c");
			if (seed % 2) {
				assert_int_equal(match_tokens(store, a, 1, 40), 21 * 16);
				assert_int_equal(match_tokens(store, c, 1, 40), 40 * 16);
			} else {
				assert_true(match_tokens(store, a, 1, 40) <= 21 * 16);
			}
			assert_int_equal(match_tokens(store, b, 1, 40), 16);
		}
		long n = cairn_drop_tenant(store, "t1");
		assert_true(seed % 2 ? n == 22 : n >= 2);
		assert_int_equal(match_tokens(store, a, 1, 40), 0);
		store = world_reopen_dead(&world, store, 1);
		assert_int_equal(match_tokens(store, space_named(store, "t1", "a"), 1, 40), 0);
		assert_int_equal(match_tokens(store, space_named(store, "t1", "b"), 1, 40), 0);
		if (seed % 2)
			assert_int_equal(match_tokens(store, space_named(store, "t2", "c"), 1, 40), 640);
		store_abandon(store);
		world_done(&world);
	}
}

/* Drops go on and on while segments come and go: the ledger forgets those that nothing can bring back. */
static void test_store_drop__never_fills_ledger_when_segments_turn_over(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 3, 16 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	uint32_t refused = 0;
	for (uint64_t chain = 0; chain < 150; chain++) {
		cairn_key keys[20];
		for (uint32_t i = 0; i < 20; i++)
			keys[i] = key_at(chain, i);
		assert_int_equal(put_chain(store, space, chain, 0, 20, LENGTH, CAIRN_DURABLE_FLASH), 20);
		refused += cairn_drop(store, space, keys + 10, 10) < 0;
	}
	/* 1,500 drops; an area of the ledger holds some 500. */
	assert_int_equal(refused, 0);
	assert_true(flash_ledger(served_inside(store)->devices[0].flash)->mark.u.mark.dropped_through > 0);
	store = world_reopen_dead(&world, store, 1);
	space = space_named(store, NULL, "m");
	for (uint64_t chain = 0; chain < 150; chain++)
		assert_true(match_tokens(store, space, chain, 20) <= 160);
	assert_int_equal(match_tokens(store, space, 149, 20), 160);
	store_abandon(store);
	world_done(&world);
}

/* Field bug 121, and a new space for each reload of weights: descriptions are many. */
static void test_store_drop__takes_many_spaces_when_store_is_small(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 4, 16 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	char model[16];
	for (int i = 0; i < 60; i++) {
		snprintf(model, sizeof model, "m%d", i);
		cairn_space *space = space_named(store, NULL, model);
		cairn_key key = key_at(1, 0);
		put_good(store, space, &key, NULL, 100, CAIRN_DURABLE_FLASH);
	}
	store = world_reopen_dead(&world, store, 1);
	for (int i = 0; i < 60; i++) {
		snprintf(model, sizeof model, "m%d", i);
		assert_int_equal(match_tokens(store, space_named(store, NULL, model), 1, 1), 16);
	}
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

/* ---- several devices --------------------------------------------------------------------------------------------- */

static void test_store_drop__loses_one_devices_blocks_when_it_is_gone(void **state)
{
	(void)state;
	struct world world;
	world_two(&world, 5);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	for (uint64_t chain = 0; chain < 20; chain++)
		assert_int_equal(put_chain(store, space, chain, 0, 10, LENGTH, CAIRN_DURABLE_FLASH), 10);
	struct cairn_stat stat = stat_of(store);
	assert_int_equal(stat.ndevices, 2);
	/* Both are used, and a chain lies on one. */
	assert_true(stat.device[0].live_bytes > 60 * LENGTH && stat.device[1].live_bytes > 60 * LENGTH);
	uint64_t on_first = stat.device[0].live_bytes / (10 * LENGTH);
	assert_int_equal(cairn_close(store), 0);
	/* It is away: half of the label's pages are unreadable, so to say. */
	uint64_t size;
	uint8_t *bytes = sim_file_bytes(world.sim, "d1", &size), *kept = malloc(size);
	memcpy(kept, bytes, size);
	sim_rot(world.sim, "d1", 0, 8192);
	store = world_open(&world);
	space = space_named(store, NULL, "m");
	uint64_t whole = 0, dropped = 99;
	for (uint64_t chain = 0; chain < 20; chain++)
		whole += match_tokens(store, space, chain, 10) == 160;
	assert_int_equal(whole, on_first);
	/* What is dropped while it is away is dropped there too; a session saved meanwhile is known when it is back. */
	cairn_key keys[200];
	for (uint32_t i = 0; i < 200; i++)
		keys[i] = key_at(i / 10, i % 10);
	(void)dropped;
	assert_true(cairn_drop(store, space, keys, 100) >= 0);
	assert_int_equal(put_chain(store, space, 50, 0, 10, LENGTH, CAIRN_DURABLE_FLASH), 10);
	cairn_key saved[10];
	for (uint32_t i = 0; i < 10; i++)
		saved[i] = key_at(50, i);
	struct cairn_chain chain = {0, saved, 10};
	struct cairn_save save = {.size = sizeof save, .name = {NULL, NULL, "meanwhile"}, .chains = &chain, .nchains = 1};
	assert_int_equal(cairn_session_save(store, space, &save), 0);
	assert_int_equal(cairn_close(store), 0);
	memcpy(sim_file_bytes(world.sim, "d1", &size), kept, size);
	store = world_open(&world);
	space = space_named(store, NULL, "m");
	for (uint64_t c = 0; c < 20; c++)
		assert_int_equal(match_tokens(store, space, c, 10), c < 10 ? 0 : 160);
	cairn_session *session;
	assert_int_equal(cairn_session_resume(store, &save.name, &session), 0);
	cairn_session_free(session);
	verify(store);
	store = world_reopen_dead(&world, store, 1);
	space = space_named(store, NULL, "m");
	for (uint64_t c = 0; c < 20; c++)
		assert_int_equal(match_tokens(store, space, c, 10), c < 10 ? 0 : 160);
	free(kept);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

static void test_store_drop__adds_device_when_one_is_named(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 6, 24 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	assert_int_equal(put_chain(store, space, 1, 0, 10, LENGTH, CAIRN_DURABLE_FLASH), 10);
	cairn_key key = key_at(1, 9);
	assert_int_equal(cairn_drop(store, space, &key, 1), 1);
	assert_int_equal(cairn_close(store), 0);
	world.flash[1] = (struct cairn_flash){.path = "d1", .budget_bytes = 24 * MIB};
	world.options.nflash = 2;
	store = world_open(&world);
	space = space_named(store, NULL, "m");
	assert_int_equal(match_tokens(store, space, 1, 10), 9 * 16);
	for (uint64_t chain = 10; chain < 20; chain++)
		assert_int_equal(put_chain(store, space, chain, 0, 10, LENGTH, CAIRN_DURABLE_FLASH), 10);
	assert_true(stat_of(store).device[1].live_bytes > 0);
	/* Remembered: nobody has to name it again. */
	world.options.nflash = 0;
	store = world_reopen_dead(&world, store, 1);
	assert_int_equal(stat_of(store).ndevices, 2);
	space = space_named(store, NULL, "m");
	assert_int_equal(match_tokens(store, space, 1, 10), 9 * 16);
	for (uint64_t chain = 10; chain < 20; chain++)
		assert_int_equal(match_tokens(store, space, chain, 10), 160);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

/* ---- looking ----------------------------------------------------------------------------------------------------- */

static int part_count(void *arg, const struct cairn_part_info *info)
{
	uint64_t *counts = arg;
	counts[0]++;
	counts[1] += info->in_memory;
	counts[2] += info->in_flash;
	counts[3] += info->bytes;
	return 0;
}

static int space_count(void *arg, const struct cairn_space_info *info)
{
	uint64_t *counts = arg;
	counts[0]++;
	counts[1] += info->parts;
	counts[2] += info->bytes;
	assert_non_null(strstr(info->text, "model"));
	return 0;
}

/* Field bug 18: lists and gets agree. */
static void test_store_drop__lists_what_gets_find(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 7, 24 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *a = space_named(store, NULL, "a"), *b = space_named(store, NULL, "b");
	for (uint64_t chain = 0; chain < 60; chain++)
		assert_int_equal(put_chain(store, chain % 2 ? a : b, chain, 0, 10, LENGTH, 0), 10);
	assert_int_equal(cairn_sync(store), 0);
	uint64_t counts[4] = {0}, spaces[3] = {0}, found = 0;
	long n = cairn_list_parts(store, NULL, part_count, counts);
	assert_int_equal(n, counts[0]);
	assert_int_equal(cairn_list_spaces(store, space_count, spaces), 2);
	assert_int_equal(spaces[1], counts[0]);
	assert_int_equal(spaces[2], counts[3]);
	assert_int_equal(counts[3], counts[0] * LENGTH);
	struct cairn_stat stat = stat_of(store);
	assert_int_equal(counts[1], stat.tier[CAIRN_TIER_MEMORY].parts);
	assert_int_equal(counts[2], stat.tier[CAIRN_TIER_FLASH].parts);
	for (uint64_t chain = 0; chain < 60; chain++)
		for (uint32_t i = 0; i < 10; i++) {
			cairn_key key = key_at(chain, i);
			found += get_status(store, chain % 2 ? a : b, &key, LENGTH) == CAIRN_OK;
		}
	assert_int_equal(found, counts[0]);
	cairn_digest id;
	cairn_space_get_id(a, &id);
	uint64_t mine[4] = {0};
	assert_int_equal(cairn_list_parts(store, &id, part_count, mine), 300);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

static void test_store_drop__tells_events_in_order(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 8, 16 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	struct cairn_event events[64];
	assert_int_equal(cairn_events(store, 0, events, 64), 0);
	assert_int_equal(put_chain(store, space, 1, 0, 3, LENGTH, CAIRN_DURABLE_FLASH), 3);
	cairn_key key = key_at(1, 2);
	assert_int_equal(cairn_drop(store, space, &key, 1), 1);
	long n = cairn_events(store, 0, events, 64);
	assert_int_equal(n, 8);
	for (long i = 0; i < n; i++) {
		assert_int_equal(events[i].sequence, i + 1);
		assert_int_equal(events[i].kind, i < 6 ? CAIRN_EVENT_STORED : CAIRN_EVENT_REMOVED);
		assert_int_equal(events[i].tier, i < 3    ? CAIRN_TIER_MEMORY
		                                 : i < 6  ? CAIRN_TIER_FLASH
		                                 : i == 6 ? CAIRN_TIER_FLASH
		                                          : CAIRN_TIER_MEMORY);
		if (i >= 6) {
			assert_int_equal(events[i].reason, CAIRN_WHY_DROPPED);
			assert_memory_equal(events[i].key_prefix, key.bytes, 16);
		}
	}
	assert_int_equal(cairn_events(store, 5, events, 64), 3);
	assert_int_equal(events[0].sequence, 6);
	assert_int_equal(cairn_events(store, 8, events, 64), 0);
	assert_int_equal(cairn_events(store, 0, events, 2), 2);
	/* Who is too late sees a gap. */
	const cairn *own = served_inside(store);
	for (uint64_t chain = 100; own->event_last < 70000; chain++) {
		assert_int_equal(put_chain(store, space, chain, 0, 100, 100, 0), 100);
		assert_int_equal(cairn_sync(store), 0);
	}
	assert_int_equal(cairn_events(store, 8, events, 1), 1);
	assert_true(events[0].sequence > 9 && events[0].sequence == own->event_last - 65535);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_store_drop__stays_dropped_when_machine_dies),
		cmocka_unit_test(test_store_drop__never_fills_ledger_when_segments_turn_over),
		cmocka_unit_test(test_store_drop__takes_many_spaces_when_store_is_small),
		cmocka_unit_test(test_store_drop__loses_one_devices_blocks_when_it_is_gone),
		cmocka_unit_test(test_store_drop__adds_device_when_one_is_named),
		cmocka_unit_test(test_store_drop__lists_what_gets_find),
		cmocka_unit_test(test_store_drop__tells_events_in_order),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
