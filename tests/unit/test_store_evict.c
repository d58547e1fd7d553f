/* SPDX-License-Identifier: Apache-2.0 */
/* src/store/entry.c, host.c and src/tier/clean.c: what leaves when there is no room, and what stays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/store_lib.h"

enum {
	LENGTH = 50000
};

static uint64_t file_bytes(struct world *world)
{
	uint64_t size;
	sim_file_bytes(world->sim, WORLD_FLASH, &size);
	return size;
}

/* Field bugs 12, 21: five times the budget; the file never grows beyond it, and no put fails. */
static void test_store_evict__holds_budget_when_five_times_is_put(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 1, 24 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	for (uint64_t chain = 0; chain < 250; chain++) {
		assert_int_equal(put_chain(store, space, chain, 0, 10, LENGTH, chain % 2 ? CAIRN_DURABLE_FLASH : 0), 10);
		assert_true(file_bytes(&world) <= 24 * MIB);
	}
	struct cairn_stat stat = stat_of(store);
	assert_true(stat.tier[CAIRN_TIER_FLASH].evicted_parts > 1500);
	assert_true(stat.device[0].used_bytes <= 24 * MIB && stat.device[0].used_bytes > 20 * MIB);
	assert_int_equal(stat.tier[CAIRN_TIER_FLASH].errors, 0);
	assert_true(stat.tier[CAIRN_TIER_FLASH].parts * LENGTH > 14 * MIB);
	for (uint64_t chain = 240; chain < 250; chain++)
		assert_int_equal(match_tokens(store, space, chain, 10), 160);
	cairn_key old = key_at(0, 0);
	assert_int_equal(get_status(store, space, &old, LENGTH), CAIRN_MISS);
	assert_int_equal(why(store, space, &old), CAIRN_WHY_EVICTED);
	verify(store);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

/* Field bug 104 without pins: what is used all the time stays, through the sweep of what is used once. */
static void test_store_evict__carries_over_what_is_used(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 2, 40 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	for (uint64_t hot = 0; hot < 4; hot++)
		assert_int_equal(put_chain(store, space, hot, 0, 10, LENGTH, CAIRN_DURABLE_FLASH), 10);
	uint32_t tokens = 0, asked = 0;
	for (uint64_t chain = 100; chain < 400; chain++) {
		assert_int_equal(put_chain(store, space, chain, 0, 10, LENGTH, 0), 10);
		tokens += (uint32_t)match_tokens(store, space, chain % 4, 10);
		asked += 160;
	}
	struct cairn_stat stat = stat_of(store);
	print_message("hot chains: %u of %u tokens; moved %.3f of what was written\n", tokens, asked,
	              (double)stat.device[0].moved_bytes / (double)stat.device[0].written_bytes);
	assert_true(tokens > asked / 10 * 9);
	assert_true(stat.device[0].moved_bytes > 0);
	/* Write amplification, footers and indexes included. */
	assert_true((double)stat.device[0].written_bytes <= 1.25 * (double)stat.tier[CAIRN_TIER_FLASH].written_bytes);
	assert_true(stat.device[0].moved_bytes * 5 <= stat.device[0].written_bytes + 4 * MIB);
	verify(store);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

/* Field bug 152: one long chain, put in ten calls; its end goes, its head stays usable. */
static void test_store_evict__takes_end_of_chain_first(void **state)
{
	(void)state;
	for (int flash = 0; flash < 2; flash++) {
		struct world world;
		world_init(&world, 3, 40 * MIB, flash ? 8 * MIB : 16 * MIB);
		if (!flash)
			world.options.flags = CAIRN_OPEN_NO_FLASH;
		cairn *store = world_open(&world);
		cairn_space *space = space_named(store, NULL, "m");
		uint32_t n = flash ? 500 : 200, room = flash ? 700 : 250;
		for (uint32_t from = 0; from < n; from += n / 10)
			assert_int_equal(put_chain(store, space, 1, from, n / 10, LENGTH, 0), n / 10);
		assert_int_equal(match_tokens(store, space, 1, n), n * 16);
		sim_advance(world.sim, 1000000000ull); /* what comes now is younger */
		for (uint32_t i = 0; i < room - n / 2; i++) {
			cairn_key key = key_at(10 + i, 0);
			put_good(store, space, &key, NULL, LENGTH, 0);
		}
		if (flash)
			assert_int_equal(cairn_sync(store), 0);
		world_run(&world, store, 100);
		uint64_t usable = match_tokens(store, space, 1, n) / 16, there = 0;
		cairn *own = served_inside(store);
		uint32_t number = served_space(store, space)->number;
		for (uint32_t i = 0; i < n; i++) {
			pthread_mutex_lock(&own->lock);
			uint32_t entry = catalog_find(own->catalog, number, key_at(1, i).bytes, 0);
			there += entry && !(catalog_at(own->catalog, entry)->flags & CATALOG_GHOST);
			pthread_mutex_unlock(&own->lock);
		}
		assert_true(usable < n);         /* some went */
		assert_true(usable > n / 10);    /* and the head is of use */
		assert_int_equal(there, usable); /* nothing is left that nobody can match */
		verify(store);
		assert_int_equal(cairn_close(store), 0);
		world_done(&world);
	}
}

/* Field bug 20: flash evicts what memory still has; memory then does not give up its copy as one that is safe below. */
static void test_store_evict__keeps_count_when_flash_loses_what_memory_has(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 10, 16 * MIB, 16 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	cairn_key key = key_at(1, 0);
	put_good(store, space, &key, NULL, LENGTH, CAIRN_DURABLE_FLASH);
	struct cairn_item item = {.key = key};
	cairn_lease *lease;
	assert_int_equal(cairn_lease_take(store, space, &item, NULL, &lease), 0);
	const cairn *own = served_inside(store);
	uint32_t entry = catalog_find(own->catalog, served_space(store, space)->number, key.bytes, 0), n = 0;
	for (; catalog_at(own->catalog, entry)->flags & CATALOG_FLASH && n < 2000;
	     n++) { /* until flash has turned over */
		cairn_key each = key_at(10 + n, 0);
		put_good(store, space, &each, NULL, LENGTH, CAIRN_DURABLE_FLASH);
	}
	assert_true(n < 2000);
	verify(store);
	assert_int_equal(get_item(store, space, &key, 0, LENGTH).ret_tier, CAIRN_TIER_MEMORY);
	/* Asked for durability again it is written down again. */
	assert_int_equal(put_status(store, space, &key, NULL, LENGTH, CAIRN_DURABLE_FLASH), CAIRN_EXISTED);
	cairn_lease_release(store, lease);
	store = world_reopen_dead(&world, store, 1);
	space = space_named(store, NULL, "m");
	assert_int_equal(get_status(store, space, &key, LENGTH), CAIRN_OK);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

/* When the head of a chain is lost the rest goes too, and says why. */
static void test_store_evict__removes_orphans_when_head_is_dropped(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 4, 40 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	assert_int_equal(put_chain(store, space, 1, 0, 30, LENGTH, CAIRN_DURABLE_FLASH), 30);
	/* Two chains share the head of 10. */
	cairn_key branch = key_at(2, 0), at = key_at(1, 9), head = key_at(1, 4);
	put_good(store, space, &branch, &at, LENGTH, CAIRN_DURABLE_FLASH);
	assert_int_equal(cairn_drop(store, space, &head, 1), 1);
	world_run(&world, store, 500);
	struct cairn_stat stat = stat_of(store);
	assert_int_equal(stat.orphan_parts, 26);
	assert_int_equal(stat.tier[CAIRN_TIER_FLASH].parts, 4);
	assert_int_equal(match_tokens(store, space, 1, 30), 4 * 16);
	assert_int_equal(why(store, space, &branch), CAIRN_WHY_ORPHAN);
	assert_int_equal(why(store, space, &head), CAIRN_WHY_DROPPED);
	verify(store);
	/* The same when it is found so at a reopen. */
	store = world_reopen_dead(&world, store, 1);
	space = space_named(store, NULL, "m");
	world_run(&world, store, 500);
	assert_int_equal(stat_of(store).tier[CAIRN_TIER_FLASH].parts, 4);
	verify(store);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

/* The catalog has a budget: full, it evicts. */
static void test_store_evict__makes_room_when_catalog_is_full(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 5, 64 * MIB, 16 * MIB);
	world.options.catalog_bytes = 64 * 1024;
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	uint64_t capacity = stat_of(store).catalog_capacity;
	assert_true(capacity > 500 && capacity < 2000);
	for (uint64_t chain = 0; chain < capacity * 3 / 8; chain++)
		assert_int_equal(put_chain(store, space, chain, 0, 8, 300, chain % 8 ? 0 : CAIRN_DURABLE_FLASH), 8);
	struct cairn_stat stat = stat_of(store);
	assert_true(stat.catalog_entries <= capacity);
	assert_true(stat.tier[CAIRN_TIER_FLASH].evicted_parts + stat.tier[CAIRN_TIER_MEMORY].evicted_parts > capacity);
	for (uint64_t chain = capacity * 3 / 8 - 5; chain < capacity * 3 / 8; chain++)
		assert_true(match_tokens(store, space, chain, 8) > 0);
	verify(store);
	/* A smaller one at the next open still opens. */
	world.options.catalog_bytes = 32 * 1024;
	store = world_reopen(&world, store);
	assert_true(stat_of(store).catalog_entries <= stat_of(store).catalog_capacity);
	verify(store);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

/* Field bug 138: puts that are refused at random leave no chain with a hole. */
static void test_store_evict__leaves_no_holes_when_puts_are_refused(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 6, 40 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	struct random random;
	random_init(&random, 1);
	uint32_t good = 0;
	int broken = 0;
	for (uint32_t i = 0; i < 100; i++) {
		cairn_key key = key_at(1, i), parent = key_at(1, i - 1);
		if (random_chance(&random, 30000)) { /* the caller could not */
			broken = 1;
			continue;
		}
		put_good(store, space, &key, i ? &parent : NULL, LENGTH, 0);
		good += !broken;
	}
	assert_true(broken);
	assert_int_equal(cairn_sync(store), 0);
	/* What nobody can match is not written down. */
	assert_int_equal(stat_of(store).tier[CAIRN_TIER_FLASH].parts, good);
	assert_int_equal(match_tokens(store, space, 1, 100), good * 16);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

/* ---- the file system --------------------------------------------------------------------------------------------- */

/* Field bugs 13, 65: the disk fills, by us and by others. Reads go on, puts evict, nothing else breaks. */
static void test_store_evict__survives_when_disk_is_full(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 7, 64 * MIB, 8 * MIB);
	sim_set_space(world.sim, 20 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	for (uint64_t chain = 0; chain < 100; chain++)
		assert_int_equal(put_chain(store, space, chain, 0, 10, LENGTH, CAIRN_DURABLE_NONE), 10);
	assert_true(file_bytes(&world) <= 21 * MIB);
	assert_true(stat_of(store).tier[CAIRN_TIER_FLASH].evicted_parts > 100);
	assert_int_equal(put_chain(store, space, 200, 0, 10, LENGTH, CAIRN_DURABLE_FLASH), 10);
	sim_set_space(world.sim, 0); /* somebody else took the rest */
	for (uint64_t chain = 201; chain < 230; chain++)
		assert_int_equal(put_chain(store, space, chain, 0, 10, LENGTH, CAIRN_DURABLE_FLASH), 10);
	assert_int_equal(match_tokens(store, space, 229, 10), 160);
	verify(store);
	store = world_reopen_dead(&world, store, 1);
	space = space_named(store, NULL, "m");
	assert_int_equal(match_tokens(store, space, 229, 10), 160);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

static void test_store_evict__keeps_floor_free_when_asked(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 8, 64 * MIB, 8 * MIB);
	sim_set_space(world.sim, 40 * MIB);
	world.options.free_floor_bytes = 20 * MIB;
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	for (uint64_t chain = 0; chain < 100; chain++)
		assert_int_equal(put_chain(store, space, chain, 0, 10, LENGTH, CAIRN_DURABLE_FLASH), 10);
	assert_true(file_bytes(&world) <= 21 * MIB);
	/* Others take space until the floor is touched: it gives some back. */
	uint64_t before = stat_of(store).device[0].used_bytes;
	sim_set_space(world.sim, 12 * MIB);
	for (uint64_t chain = 100; chain < 130; chain++) {
		(void)put_chain(store, space, chain, 0, 10, LENGTH, CAIRN_DURABLE_NONE);
		world_run(&world, store, 200);
	}
	assert_true(stat_of(store).device[0].used_bytes + 6 * MIB <= before);
	assert_true(match_tokens(store, space, 129, 10) > 0);
	verify(store);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

static void test_store_evict__shrinks_when_budget_is_smaller(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 9, 40 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	for (uint64_t chain = 0; chain < 80; chain++)
		assert_int_equal(put_chain(store, space, chain, 0, 10, LENGTH, CAIRN_DURABLE_FLASH), 10);
	assert_true(stat_of(store).device[0].used_bytes > 35 * MIB);
	assert_int_equal(cairn_close(store), 0);
	world.flash[0].budget_bytes = 16 * MIB;
	store = world_open(&world);
	space = space_named(store, NULL, "m");
	for (uint64_t chain = 80; chain < 100; chain++) {
		assert_int_equal(put_chain(store, space, chain, 0, 10, LENGTH, CAIRN_DURABLE_FLASH), 10);
		world_run(&world, store, 100);
	}
	assert_true(stat_of(store).device[0].used_bytes <= 17 * MIB);
	assert_int_equal(match_tokens(store, space, 99, 10), 160);
	verify(store);
	/* Remembered, and larger again. */
	world.flash[0].budget_bytes = 0;
	store = world_reopen(&world, store);
	assert_int_equal(stat_of(store).device[0].budget_bytes, 16 * MIB);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

/* Field bug 38: a tenant that puts ten times the memory does not take another's share of it. */
static void test_store_evict__leaves_tenants_their_memory(void **state)
{
	(void)state;
	struct cairn_options options = {
		.size = sizeof options, .flags = CAIRN_OPEN_NO_FLASH, .memory_bytes = 16 * MIB, .catalog_bytes = MIB};
	cairn *store;
	assert_int_equal(cairn_open(NULL, &options, &store), 0);
	cairn_space *quiet = space_named(store, "quiet", "m"), *loud = space_named(store, "loud", "m");
	assert_int_equal(put_chain(store, quiet, 1, 0, 40, LENGTH, 0), 40);
	for (uint64_t chain = 10; chain < 400; chain++)
		assert_int_equal(put_chain(store, loud, chain, 0, 8, LENGTH, 0), 8);
	assert_int_equal(match_tokens(store, quiet, 1, 40), 640);
	assert_int_equal(match_tokens(store, loud, 1, 40), 0);
	verify(store);
	assert_int_equal(cairn_close(store), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_store_evict__holds_budget_when_five_times_is_put),
		cmocka_unit_test(test_store_evict__carries_over_what_is_used),
		cmocka_unit_test(test_store_evict__takes_end_of_chain_first),
		cmocka_unit_test(test_store_evict__keeps_count_when_flash_loses_what_memory_has),
		cmocka_unit_test(test_store_evict__removes_orphans_when_head_is_dropped),
		cmocka_unit_test(test_store_evict__makes_room_when_catalog_is_full),
		cmocka_unit_test(test_store_evict__leaves_no_holes_when_puts_are_refused),
		cmocka_unit_test(test_store_evict__survives_when_disk_is_full),
		cmocka_unit_test(test_store_evict__keeps_floor_free_when_asked),
		cmocka_unit_test(test_store_evict__shrinks_when_budget_is_smaller),
		cmocka_unit_test(test_store_evict__leaves_tenants_their_memory),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
