/* SPDX-License-Identifier: Apache-2.0 */
/* Faults of the flash tier that need a certain order of I/Os to show (tests/faults/flash.txt). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tier/flash_in.h"
#include "unit/store_lib.h"

/* Whether an event of this key came after event `after`. */
static int event_seen(cairn *store, uint64_t after, const cairn_key *key, uint32_t kind, uint32_t tier)
{
	static struct cairn_event events[256];
	long n;
	while ((n = cairn_events(store, after, events, 256)) > 0)
		for (long i = 0; i < n; i++) {
			after = events[i].sequence;
			if (events[i].kind == kind && events[i].tier == tier && !memcmp(events[i].key_prefix, key->bytes, 16))
				return 1;
		}
	return 0;
}

/* A read that takes long, while the device turns over several times: the bytes it reads stay until it is done. */
static void test_faults_flash__keeps_segment_when_it_is_being_read(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 3, 16 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	put_chain(store, space, 1, 0, 10, 100000, CAIRN_DURABLE_FLASH);
	store = world_reopen(&world, store); /* in flash alone */
	space = space_named(store, NULL, "m");
	cairn_key key = key_at(1, 9);
	struct cairn_chain chain = {0, &key, 1};
	struct sim_faults faults = {.slow_ppm = 1000000, .slow_ns_max = 60000000000ull};
	sim_set_faults(world.sim, NULL, &faults);
	uint64_t before = store->event_last;
	assert_int_equal(cairn_hint(store, space, &chain, CAIRN_HINT_RESUME), 0);
	world_run(&world, store, 2);
	memset(&faults, 0, sizeof faults);
	sim_set_faults(world.sim, NULL, &faults);
	assert_false(event_seen(store, before, &key, CAIRN_EVENT_STORED, CAIRN_TIER_MEMORY));
	for (uint64_t i = 0; i < 450; i++)
		put_chain(store, space, 100 + i, 0, 1, 100000, CAIRN_DURABLE_FLASH);
	world_run(&world, store, 61000);
	assert_true(event_seen(store, before, &key, CAIRN_EVENT_STORED, CAIRN_TIER_MEMORY));
	verify(store);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

static uint64_t parts_in_flash(cairn *store)
{
	return stat_of(store).tier[CAIRN_TIER_FLASH].parts;
}

/* The device turns over, and dies each few puts: segments are found in their present life, with nothing of an earlier
 * one. Nothing is read, so nothing is carried over. */
static void test_faults_flash__finds_what_was_there_when_killed_again_and_again(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 4, 8 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	for (uint64_t round = 0; round < 30; round++) {
		cairn_space *space = space_named(store, NULL, "m");
		for (uint64_t i = 0; i < 5; i++)
			put_chain(store, space, round * 5 + i, 0, 1, 100000, CAIRN_DURABLE_FLASH);
		world_run(&world, store, 300); /* frees go into the ledger without a wait */
		uint64_t parts = parts_in_flash(store);
		store = world_reopen_dead(&world, store, 1);
		assert_int_equal(parts_in_flash(store), parts);
		space = space_named(store, NULL, "m");
		for (uint64_t i = 0; i < 5; i++) {
			cairn_key key = key_at(round * 5 + i, 0);
			assert_int_equal(get_status(store, space, &key, 100000), CAIRN_OK);
		}
		store = world_reopen_dead(&world, store, 0);
	}
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

/* Dies anywhere: in a segment that was given a new life lies nothing that was written before that. */
static void test_faults_flash__finds_nothing_of_earlier_life_when_killed_anywhere(void **state)
{
	(void)state;
	enum { PUTS = 600 };
	static uint64_t written_by[PUTS]; /* sequence of the last group when the put was over */
	struct world world;
	world_init(&world, 7, 8 * MIB, 8 * MIB);
	sim_dead_fails(world.sim, 1);
	cairn *store = world_open(&world);
	uint32_t puts = 0, looked_at = 0;
	for (uint64_t round = 1; puts < PUTS - 10; round++) {
		cairn_space *space = space_named(store, NULL, "m");
		const struct flash *flash = store->devices[0].flash;
		uint64_t deaths = sim_stats(world.sim)->crashes;
		sim_crash_at(world.sim, 1 + round * 7 % 37, 0);
		for (int i = 0; i < 10 && sim_stats(world.sim)->crashes == deaths; i++) {
			put_chain(store, space, puts, 0, 1, 100000, CAIRN_DURABLE_FLASH);
			written_by[puts++] = sim_stats(world.sim)->crashes == deaths ? flash->sequence : UINT64_MAX;
		}
		sim_crash_at(world.sim, 0, 0);
		store = world_reopen_dead(&world, store, 1);
		const struct ledger *ledger = flash_ledger(store->devices[0].flash);
		for (uint32_t i = 0; i < puts; i++) {
			cairn_key key = key_at(i, 0);
			uint32_t entry = catalog_find(store->catalog, 1, key.bytes, 0);
			if (!entry)
				continue;
			uint32_t segment = catalog_at(store->catalog, entry)->page / store->devices[0].pages_per_segment;
			assert_true(written_by[i] >= ledger->segments[segment].start_sequence);
			looked_at++;
		}
	}
	assert_true(looked_at > PUTS);
	store_abandon(store);
	world_done(&world);
}

/* Behind the end of an open segment lie old bytes. They are looked through once, and not at each reopen. */
static void test_faults_flash__knows_end_of_segment_when_opened_again(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 8, 16 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	for (uint64_t i = 0; i < 253; i++) /* turns over; the last segment is about half full */
		put_chain(store, space, i, 0, 1, 100000, CAIRN_DURABLE_FLASH);
	store = world_reopen_dead(&world, store, 0);
	uint64_t first = stat_of(store).reopen_read_bytes;
	store = world_reopen_dead(&world, store, 0);
	uint64_t second = stat_of(store).reopen_read_bytes;
	assert_true(second + 256 * 1024 < first);
	store_abandon(store);
	world_done(&world);
}

/* Any one of the two copies of the whole ledger is enough. */
static void test_faults_flash__keeps_decisions_when_one_copy_of_ledger_is_lost(void **state)
{
	(void)state;
	for (uint64_t copy = 0; copy < 2; copy++) {
		struct world world;
		struct fmt_label label;
		uint64_t size;
		world_init(&world, 9, 16 * MIB, 8 * MIB);
		cairn *store = world_open(&world);
		cairn_space *space = space_named(store, NULL, "m");
		assert_int_equal(put_chain(store, space, 1, 0, 10, 10000, CAIRN_DURABLE_FLASH), 10);
		cairn_key last = key_at(1, 9);
		assert_int_equal(cairn_drop(store, space, &last, 1), 1);
		assert_int_equal(segment_label_decode(sim_file_bytes(world.sim, WORLD_FLASH, &size), &label), FMT_OK);
		for (uint64_t area = 0; area < 2; area++)
			sim_rot(world.sim, WORLD_FLASH, label.ledger_offset + (area * 2 + copy) * label.ledger_bytes,
			        label.ledger_bytes);
		store = world_reopen_dead(&world, store, 1);
		space = space_named(store, NULL, "m");
		assert_int_equal(stat_of(store).doubtful_parts, 0);
		assert_int_equal(match_tokens(store, space, 1, 10), 9 * 16);
		store_abandon(store);
		world_done(&world);
	}
}

/* A group is on its way for long, while flushes come and go and a later group is flushed. Then the power goes: of the
 * first one what is torn is a miss, not damage, since no later group says that it was flushed; and what did not land of
 * it hides nothing that was said to be durable. */
static void test_faults_flash__misses_when_group_was_torn_under_a_flush(void **state)
{
	(void)state;
	int missed = 0;
	for (uint64_t seed = 1; seed <= 40; seed++) {
		struct world world;
		world_init(&world, seed, 32 * MIB, 8 * MIB);
		cairn *store = world_open(&world);
		cairn_space *space = space_named(store, NULL, "m");
		cairn_key slow = key_at(2, 0), later = key_at(3, 0), none = key_at(4, 0);
		put_chain(store, space, 1, 0, 1, 10000, CAIRN_DURABLE_FLASH); /* a segment is open */
		struct sim_faults faults = {.slow_ppm = 1000000, .slow_ns_max = 1000000000000ull};
		sim_set_faults(world.sim, NULL, &faults);
		put_good(store, space, &slow, NULL, 20000, CAIRN_DURABLE_NONE);
		world_run(&world, store, 2);
		faults.slow_ppm = 0;
		sim_set_faults(world.sim, NULL, &faults);
		assert_int_equal(cairn_drop(store, space, &none, 1), 0); /* a flush */
		put_good(store, space, &later, NULL, 20000, CAIRN_DURABLE_NONE);
		assert_int_equal(cairn_drop(store, space, &none, 1), 0); /* written, */
		assert_int_equal(cairn_drop(store, space, &none, 1), 0); /* and flushed */
		uint32_t entry = catalog_find(store->catalog, space->number, later.bytes, 0);
		int durable = (catalog_at(store->catalog, entry)->flags & CATALOG_DURABLE) != 0;
		store = world_reopen_dead(&world, store, 1);
		space = space_named(store, NULL, "m");
		if (durable)
			assert_int_equal(get_status(store, space, &later, 20000), CAIRN_OK);
		int status = get_status(store, space, &slow, 20000);
		assert_true(status == CAIRN_OK || status == CAIRN_MISS);
		missed += status == CAIRN_MISS;
		store_abandon(store);
		world_done(&world);
	}
	assert_true(missed);
}

/* A flush fails, and what it should have covered can be read until the power goes, as Linux does it. The process dies
 * first: what the next one finds, and says is durable, is. */
static void test_faults_flash__makes_durable_what_a_failed_flush_left_behind(void **state)
{
	(void)state;
	for (uint64_t seed = 100; seed <= 150; seed++) {
		struct world world;
		world_init(&world, seed, 16 * MIB, 8 * MIB);
		cairn *store = world_open(&world);
		cairn_space *space = space_named(store, NULL, "m");
		cairn_key key = key_at(2, 0), gone = key_at(1, 2);
		put_chain(store, space, 1, 0, 3, 10000, CAIRN_DURABLE_FLASH);
		put_good(store, space, &key, NULL, 20000, CAIRN_DURABLE_NONE);
		world_run(&world, store, 2); /* written */
		struct sim_faults faults = {.flush_error_ppm = 1000000};
		sim_set_faults(world.sim, NULL, &faults);
		assert_int_equal(cairn_drop(store, space, &gone, 1), CAIRN_E_IO);
		faults.flush_error_ppm = 0;
		sim_set_faults(world.sim, NULL, &faults);
		store = world_reopen_dead(&world, store, 0);
		space = space_named(store, NULL, "m");
		int status = put_status(store, space, &key, NULL, 20000, CAIRN_DURABLE_FLASH);
		assert_true(status == CAIRN_OK || status == CAIRN_EXISTED);
		store = world_reopen_dead(&world, store, 1);
		space = space_named(store, NULL, "m");
		assert_int_equal(get_status(store, space, &key, 20000), CAIRN_OK);
		assert_int_equal(stat_of(store).doubtful_parts, 0);
		assert_true(match_tokens(store, space, 1, 3) >= 32);
		store_abandon(store);
		world_done(&world);
	}
}

/* Writes fail here and there while the device turns over: what is pinned stays. */
static void test_faults_flash__keeps_pinned_when_carrying_over_fails(void **state)
{
	(void)state;
	enum { BLOCKS = 20 };
	for (uint64_t seed = 1; seed <= 3; seed++) {
		struct world world;
		world_init(&world, seed, 16 * MIB, 8 * MIB);
		cairn *store = world_open(&world);
		cairn_space *space = space_named(store, NULL, "m");
		cairn_key keys[BLOCKS];
		for (uint32_t i = 0; i < BLOCKS; i++) {
			keys[i] = key_at(1, i);
			put_chain(store, space, 1, i, 1, 100000, CAIRN_DURABLE_FLASH);
			put_chain(store, space, 100 + i, 0, 3, 100000, CAIRN_DURABLE_FLASH); /* one in each segment or so */
		}
		struct cairn_chain chain = {0, keys, BLOCKS};
		struct cairn_save save = {.size = sizeof save, .name = {.name = "s"}, .chains = &chain, .nchains = 1,
		                          .tokens = BLOCKS * 16, .pin = 1};
		assert_int_equal(cairn_session_save(store, space, &save), 0);
		struct sim_faults faults = {.write_error_ppm = 60000};
		sim_set_faults(world.sim, NULL, &faults);
		for (uint64_t i = 0; i < 300; i++) {
			if (put_chain(store, space, 1000 + i, 0, 1, 100000, CAIRN_DURABLE_FLASH) != 1)
				sim_advance(world.sim, 1000000000ull);
		}
		memset(&faults, 0, sizeof faults);
		sim_set_faults(world.sim, NULL, &faults);
		store = world_reopen_dead(&world, store, 1);
		space = space_named(store, NULL, "m");
		for (uint32_t i = 0; i < BLOCKS; i++)
			assert_int_equal(get_status(store, space, &keys[i], 100000), CAIRN_OK);
		verify(store);
		store_abandon(store);
		world_done(&world);
	}
}

static uint64_t space_left(cairn *store, uint64_t *ret_size)
{
	struct io *io = store->devices[0].flash->io;
	uint64_t left, all;
	assert_int_equal(io->ops->space(io, ret_size, &left, &all), 0);
	return left;
}

static void test_faults_flash__stays_in_budget_when_it_turns_over(void **state)
{
	(void)state;
	static const uint64_t budgets[] = {8 * MIB, 8 * MIB + MIB / 2, 9 * MIB - 1};
	for (size_t b = 0; b < sizeof budgets / sizeof budgets[0]; b++) {
		struct world world;
		world_init(&world, 5, budgets[b], 8 * MIB);
		cairn *store = world_open(&world);
		cairn_space *space = space_named(store, NULL, "m");
		const struct flash *flash = store->devices[0].flash;
		uint64_t size = 0;
		/* The last segments are used in an emergency only: count them. */
		assert_true(flash_offset(flash, flash->budget_segments, 0) <= budgets[b]);
		assert_true(flash_offset(flash, flash->budget_segments + 1, 0) > budgets[b]);
		for (uint64_t i = 0; i < 60; i++) {
			put_chain(store, space, i, 0, 1, 200000, CAIRN_DURABLE_FLASH);
			(void)space_left(store, &size);
			assert_true(size <= budgets[b]);
			assert_true(stat_of(store).device[0].used_bytes <= budgets[b]);
		}
		assert_true(size > budgets[b] - 2 * MIB); /* and it was used */
		assert_int_equal(cairn_close(store), 0);
		world_done(&world);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_faults_flash__keeps_segment_when_it_is_being_read),
		cmocka_unit_test(test_faults_flash__finds_what_was_there_when_killed_again_and_again),
		cmocka_unit_test(test_faults_flash__finds_nothing_of_earlier_life_when_killed_anywhere),
		cmocka_unit_test(test_faults_flash__knows_end_of_segment_when_opened_again),
		cmocka_unit_test(test_faults_flash__keeps_decisions_when_one_copy_of_ledger_is_lost),
		cmocka_unit_test(test_faults_flash__misses_when_group_was_torn_under_a_flush),
		cmocka_unit_test(test_faults_flash__makes_durable_what_a_failed_flush_left_behind),
		cmocka_unit_test(test_faults_flash__keeps_pinned_when_carrying_over_fails),
		cmocka_unit_test(test_faults_flash__stays_in_budget_when_it_turns_over),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
