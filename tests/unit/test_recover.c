/* SPDX-License-Identifier: Apache-2.0 */
/* src/tier/recover.c: what is found again, what is not, and what is read for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "base/digest.h"
#include "unit/store_lib.h"

enum {
	LENGTH = 60000
};

static uint32_t found_of(cairn *store, const cairn_space *space, uint32_t from, uint32_t n)
{
	uint32_t found = 0;
	for (uint32_t i = from; i < from + n; i++) {
		cairn_key key = key_at(i, 0);
		found += get_status(store, space, &key, LENGTH) == CAIRN_OK;
	}
	return found;
}

static void put_many(cairn *store, const cairn_space *space, uint32_t from, uint32_t n, uint32_t durability)
{
	for (uint32_t i = from; i < from + n; i++) {
		cairn_key key = key_at(i, 0);
		put_good(store, space, &key, NULL, LENGTH, durability);
	}
}

static void test_recover__reads_no_payload_when_closed_cleanly(void **state)
{
	(void)state;
	for (uint32_t n = 5; n <= 300; n += 59) { /* a few segments, and more than eight (a checkpoint) */
		struct world world;
		world_init(&world, n, 64 * MIB, 8 * MIB);
		cairn *store = world_open(&world);
		cairn_space *space = space_named(store, NULL, "m");
		put_many(store, space, 0, n, CAIRN_DURABLE_NONE);
		store = world_reopen(&world, store);
		struct cairn_stat stat = stat_of(store);
		assert_int_equal(stat.reopen_payload_bytes, 0);
		assert_true(stat.reopen_read_bytes < 4 * MIB);
		assert_int_equal(stat.tier[CAIRN_TIER_FLASH].parts, n);
		int checkpoint = flash_ledger(store->devices[0].flash)->mark.u.mark.clean;
		assert_int_equal(checkpoint, 0); /* this run has begun */
		space = space_named(store, NULL, "m");
		assert_int_equal(found_of(store, space, 0, n), n);
		/* Nothing is written a second time. */
		put_many(store, space, n, 1, CAIRN_DURABLE_FLASH);
		for (uint32_t i = 0; i < n; i++) {
			cairn_key key = key_at(i, 0);
			assert_int_equal(put_status(store, space, &key, NULL, LENGTH, CAIRN_DURABLE_FLASH), CAIRN_EXISTED);
		}
		assert_int_equal(stat_of(store).tier[CAIRN_TIER_FLASH].written_parts, 1);
		store = world_reopen(&world, store);
		assert_int_equal(stat_of(store).tier[CAIRN_TIER_FLASH].parts, n + 1);
		assert_int_equal(cairn_close(store), 0);
		world_done(&world);
	}
}

static void test_recover__uses_checkpoint_when_many_segments_are_sealed(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 1, 64 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	put_many(store, space, 0, 200, CAIRN_DURABLE_NONE);
	cairn_key gone = key_at(7, 0);
	assert_int_equal(cairn_drop(store, space, &gone, 1), 1);
	assert_int_equal(cairn_close(store), 0);
	/* With every footer gone the checkpoint alone tells what is in the sealed segments. */
	struct sim_world *sim = world.sim;
	uint64_t size;
	const uint8_t *file = sim_file_bytes(sim, WORLD_FLASH, &size);
	struct fmt_label label;
	assert_int_equal(segment_label_decode(file, &label), FMT_OK);
	uint32_t footers = 0;
	for (uint64_t end = label.segments_offset + label.segment_bytes; end <= size; end += label.segment_bytes) {
		file = sim_file_bytes(sim, WORLD_FLASH, &size);
		if (memcmp(file + end - FMT_PAGE, "CAIRNFTR", 8))
			continue;
		sim_rot(sim, WORLD_FLASH, end - FMT_PAGE, 4);
		footers++;
	}
	assert_true(footers >= 8);
	store = world_open(&world);
	assert_int_equal(stat_of(store).reopen_payload_bytes, 0);
	space = space_named(store, NULL, "m");
	assert_int_equal(get_status(store, space, &gone, LENGTH), CAIRN_MISS);
	assert_int_equal(found_of(store, space, 0, 200), 199);
	/* Good for one reopen: after a crash the groups tell, where there is no footer. */
	store = world_reopen_dead(&world, store, 1);
	space = space_named(store, NULL, "m");
	assert_int_equal(get_status(store, space, &gone, LENGTH), CAIRN_MISS);
	assert_int_equal(found_of(store, space, 0, 200), 199);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

static void test_recover__reads_little_payload_when_killed(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 4; seed++) {
		struct world world;
		world_init(&world, seed, 64 * MIB, 8 * MIB);
		cairn *store = world_open(&world);
		cairn_space *space = space_named(store, NULL, "m");
		put_many(store, space, 0, 250, CAIRN_DURABLE_FLASH);
		put_many(store, space, 250, 5, CAIRN_DURABLE_NONE);
		store = world_reopen_dead(&world, store, seed % 2);
		struct cairn_stat stat = stat_of(store);
		/* Each put's group tells of all before it but the last few. */
		assert_true(stat.reopen_payload_bytes <= 10 * 65536);
		space = space_named(store, NULL, "m");
		assert_int_equal(found_of(store, space, 0, 250), 250);
		put_many(store, space, 300, 20, CAIRN_DURABLE_FLASH);
		store = world_reopen_dead(&world, store, 1);
		space = space_named(store, NULL, "m");
		assert_int_equal(found_of(store, space, 0, 250), 250);
		assert_int_equal(found_of(store, space, 300, 20), 20);
		assert_int_equal(cairn_close(store), 0);
		world_done(&world);
	}
}

/* Field bug 16: what is used is known again at once, and eviction starts at once. */
static void test_recover__knows_use_when_killed_at_90_percent(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 3, 40 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	put_many(store, space, 0, 540, CAIRN_DURABLE_FLASH);
	uint64_t before = stat_of(store).device[0].used_bytes, size;
	store = world_reopen_dead(&world, store, 0);
	space = space_named(store, NULL, "m");
	sim_file_bytes(world.sim, WORLD_FLASH, &size);
	struct cairn_stat stat = stat_of(store);
	assert_int_equal(stat.device[0].used_bytes, before);
	assert_true(stat.device[0].used_bytes > 36 * MIB && stat.device[0].used_bytes <= 40 * MIB);
	assert_true(size <= 40 * MIB && size >= stat.device[0].used_bytes / 100 * 99);
	put_many(store, space, 1000, 200, CAIRN_DURABLE_FLASH);
	stat = stat_of(store);
	assert_true(stat.tier[CAIRN_TIER_FLASH].evicted_parts > 50);
	assert_true(stat.device[0].used_bytes <= 40 * MIB);
	sim_file_bytes(world.sim, WORLD_FLASH, &size);
	assert_true(size <= 40 * MIB);
	assert_int_equal(found_of(store, space, 1000, 200), 200);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

/* ---- damage ------------------------------------------------------------------------------------------------------ */

/* Device offset of a part's payload. */
static uint64_t payload_of(cairn *store, const cairn_space *space, const cairn_key *key)
{
	const struct catalog_entry *e =
		catalog_at(store->catalog, catalog_find(store->catalog, space->number, key->bytes, 0));
	assert_true(e->flags & CATALOG_FLASH);
	uint64_t size;
	struct fmt_label label;
	const struct sim_world *sim = store->maker->arg;
	assert_int_equal(
		segment_label_decode(sim_file_bytes((struct sim_world *)(uintptr_t)sim, WORLD_FLASH, &size), &label), FMT_OK);
	return label.segments_offset + (uint64_t)e->page * FMT_PAGE;
}

static void test_recover__loses_one_part_when_its_payload_rots(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 4, 32 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	put_many(store, space, 0, 30, CAIRN_DURABLE_FLASH);
	cairn_key key = key_at(12, 0), first = key_at(0, 0);
	uint64_t at = payload_of(store, space, &key), start = payload_of(store, space, &first);
	assert_int_equal(cairn_close(store), 0);
	sim_rot(world.sim, WORLD_FLASH, at + LENGTH - 1, 1);
	store = world_open(&world);
	space = space_named(store, NULL, "m");
	assert_int_equal(get_status(store, space, &key, LENGTH), CAIRN_DAMAGED);
	assert_int_equal(get_status(store, space, &key, LENGTH), CAIRN_MISS);
	assert_int_equal(why(store, space, &key), CAIRN_WHY_DAMAGED);
	assert_int_equal(stat_of(store).tier[CAIRN_TIER_FLASH].damaged_parts, 1);
	assert_int_equal(found_of(store, space, 0, 30), 29);
	/* It stays away, and can be put anew. */
	assert_int_equal(cairn_sync(store), 0);
	world_run(&world, store, 20);
	store = world_reopen_dead(&world, store, 1);
	space = space_named(store, NULL, "m");
	assert_int_equal(get_status(store, space, &key, LENGTH), CAIRN_MISS);
	put_good(store, space, &key, NULL, LENGTH, CAIRN_DURABLE_FLASH);
	store = world_reopen_dead(&world, store, 1);
	space = space_named(store, NULL, "m");
	assert_int_equal(found_of(store, space, 0, 30), 30);
	assert_int_equal(cairn_close(store), 0);
	/* The index of the first group: its part is lost, those behind it are found. */
	sim_rot(world.sim, WORLD_FLASH, start - FMT_PAGE, 1);
	store = world_open(&world);
	space = space_named(store, NULL, "m");
	assert_true(found_of(store, space, 0, 30) >= 29);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

/* A read that fails is passing: the part is kept. */
static void test_recover__keeps_part_when_read_fails(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 5, 32 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	put_many(store, space, 0, 5, CAIRN_DURABLE_FLASH);
	store = world_reopen(&world, store);
	space = space_named(store, NULL, "m");
	struct sim_faults faults = {.read_error_ppm = 1000000};
	sim_set_faults(world.sim, NULL, &faults);
	cairn_key key = key_at(3, 0);
	for (int i = 0; i < 20; i++)
		assert_int_equal(get_status(store, space, &key, LENGTH), CAIRN_E_IO);
	assert_int_equal(stat_of(store).tier[CAIRN_TIER_FLASH].damaged_parts, 0);
	faults.read_error_ppm = 0;
	sim_set_faults(world.sim, NULL, &faults);
	world_run(&world, store, 1100); /* the device is stepped over so long */
	assert_int_equal(found_of(store, space, 0, 5), 5);
	/* One wrong bit on the wire, not on the disk: the second look finds it good. */
	store = world_reopen(&world, store);
	space = space_named(store, NULL, "m");
	int good = 0;
	faults.rot_read_ppm = 300000;
	sim_set_faults(world.sim, NULL, &faults);
	for (uint32_t i = 0; i < 5; i++) {
		cairn_key each = key_at(i, 0);
		int status = get_status(store, space, &each, LENGTH);
		assert_true(status == CAIRN_OK || status == CAIRN_DAMAGED);
		good += status == CAIRN_OK;
	}
	assert_true(good >= 3);
	store_abandon(store);
	world_done(&world);
}

static void test_recover__opens_when_pages_are_damaged_at_random(void **state)
{
	(void)state;
	uint32_t found = 0;
	for (uint64_t seed = 1; seed <= 12; seed++) {
		struct world world;
		struct random random;
		random_init(&random, seed);
		world_init(&world, seed, 24 * MIB, 8 * MIB);
		cairn *store = world_open(&world);
		cairn_space *space = space_named(store, NULL, "m");
		put_many(store, space, 0, 100, CAIRN_DURABLE_FLASH);
		cairn_key dropped = key_at(50, 0);
		assert_int_equal(cairn_drop(store, space, &dropped, 1), 1);
		if (seed % 2) {
			assert_int_equal(cairn_close(store), 0);
		} else {
			sim_crash(world.sim);
			store_abandon(store);
		}
		uint64_t size;
		sim_file_bytes(world.sim, WORLD_FLASH, &size);
		for (int i = 0; i < 40; i++) /* not the labels */
			sim_rot(world.sim, WORLD_FLASH, 2 * FMT_PAGE + random_below(&random, size - 2 * FMT_PAGE - 64),
			        1 + random_below(&random, 64));
		store = world_open(&world);
		space = space_named(store, NULL, "m");
		assert_int_equal(get_status(store, space, &dropped, LENGTH), CAIRN_MISS);
		found += found_of(store, space, 0, 100); /* whatever is found is right: get_item looks */
		put_many(store, space, 200, 5, CAIRN_DURABLE_FLASH);
		store = world_reopen_dead(&world, store, 1);
		space = space_named(store, NULL, "m");
		assert_int_equal(found_of(store, space, 200, 5), 5);
		assert_int_equal(get_status(store, space, &dropped, LENGTH), CAIRN_MISS);
		store_abandon(store);
		world_done(&world);
	}
	assert_true(found > 300);
}

/* A hole in both copies of the ledger may have lost a drop: what it could cover is gone, and stays gone. */
static void test_recover__discards_doubtful_when_ledger_has_hole(void **state)
{
	(void)state;
	for (int later = 0; later < 2; later++) {
		struct world world;
		world_init(&world, 6, 32 * MIB, 8 * MIB);
		cairn *store = world_open(&world);
		cairn_space *space = space_named(store, NULL, "m");
		put_many(store, space, 0, 10, CAIRN_DURABLE_FLASH);
		const struct ledger *ledger = flash_ledger(store->devices[0].flash);
		cairn_key dropped = key_at(5, 0);
		uint64_t area = ledger->offset + (uint64_t)ledger->area * 2 * ledger->area_bytes;
		uint64_t hole = area + (uint64_t)ledger->next_index * FMT_PAGE, copy = ledger->area_bytes;
		assert_int_equal(cairn_drop(store, space, &dropped, 1), 1);
		put_many(store, space, 10, 1, CAIRN_DURABLE_FLASH); /* its group knows of the page that will be missing */
		if (later) /* the ledger goes on behind the hole, which bounds the doubt: segments are opened */
			put_many(store, space, 11, 20, CAIRN_DURABLE_FLASH);
		sim_crash(world.sim);
		store_abandon(store);
		sim_rot(world.sim, WORLD_FLASH, hole, 8);
		sim_rot(world.sim, WORLD_FLASH, hole + copy, 8);
		store = world_open(&world);
		space = space_named(store, NULL, "m");
		for (int round = 0; round < 3; round++) {
			if (!round)
				assert_true(stat_of(store).doubtful_parts >= 10);
			assert_int_equal(get_status(store, space, &dropped, LENGTH), CAIRN_MISS);
			assert_int_equal(found_of(store, space, 0, 10), 0);
			assert_int_equal(found_of(store, space, 10, 21), later ? 21 : 0);
			store = round ? world_reopen_dead(&world, store, 1) : world_reopen(&world, store);
			space = space_named(store, NULL, "m");
		}
		put_many(store, space, 0, 10, CAIRN_DURABLE_FLASH);
		store = world_reopen_dead(&world, store, 1);
		space = space_named(store, NULL, "m");
		assert_int_equal(found_of(store, space, 0, 10), 10);
		store_abandon(store);
		world_done(&world);
	}
}

/* A torn group is not reported, at this reopen and at the next, when later groups say that all before is flushed. */
static void test_recover__forgets_torn_parts_when_opened_twice(void **state)
{
	(void)state;
	uint32_t torn = 0;
	for (uint64_t seed = 1; seed <= 24; seed++) {
		struct world world;
		world_init(&world, seed, 24 * MIB, 8 * MIB);
		cairn *store = world_open(&world);
		cairn_space *space = space_named(store, NULL, "m");
		put_many(store, space, 0, 10, CAIRN_DURABLE_FLASH);
		put_many(store, space, 10, 10, CAIRN_DURABLE_NONE);
		sim_crash_at(world.sim, 1 + seed % 5, 0);
		world_run(&world, store, 5);
		store = world_reopen_dead(&world, store, 1);
		space = space_named(store, NULL, "m");
		assert_int_equal(found_of(store, space, 0, 10), 10);
		uint64_t parts = stat_of(store).tier[CAIRN_TIER_FLASH].parts;
		torn += parts < 20;
		put_many(store, space, 100, 3, CAIRN_DURABLE_FLASH);
		store = world_reopen_dead(&world, store, 1);
		space = space_named(store, NULL, "m");
		assert_int_equal(stat_of(store).tier[CAIRN_TIER_FLASH].parts, parts + 3);
		for (uint32_t i = 0; i < 20; i++) {
			cairn_key key = key_at(i, 0);
			int status = get_status(store, space, &key, LENGTH);
			assert_true(status == CAIRN_OK || (status == CAIRN_MISS && i >= 10));
		}
		store_abandon(store);
		world_done(&world);
	}
	assert_true(torn > 4);
}

/* ---- the identity, the label ------------------------------------------------------------------------------------- */

static void test_recover__opens_when_one_label_is_damaged(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 8, 16 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	put_many(store, space, 0, 5, CAIRN_DURABLE_FLASH);
	assert_int_equal(cairn_close(store), 0);
	sim_rot(world.sim, WORLD_FLASH, 100, 1);
	store = world_open(&world);
	space = space_named(store, NULL, "m");
	assert_int_equal(found_of(store, space, 0, 5), 5);
	assert_int_equal(cairn_close(store), 0);
	/* Both: the store opens without this device's blocks. */
	sim_rot(world.sim, WORLD_FLASH, FMT_PAGE + 100, 1);
	assert_int_equal(world_try(&world, &store), 0);
	assert_int_equal(stat_of(store).device[0].state, 2);
	space = space_named(store, NULL, "m");
	assert_int_equal(found_of(store, space, 0, 5), 0);
	put_many(store, space, 0, 1, CAIRN_DURABLE_NONE);
	cairn_key key = key_at(9, 0);
	assert_int_equal(put_status(store, space, &key, NULL, LENGTH, CAIRN_DURABLE_FLASH), CAIRN_E_IO);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

static void test_recover__refuses_when_identity_is_damaged_twice(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 9, 16 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	put_many(store, space, 0, 5, CAIRN_DURABLE_FLASH);
	assert_int_equal(cairn_close(store), 0);
	sim_rot(world.sim, "s/cairn.id", 33, 1);
	store = world_open(&world);
	space = space_named(store, NULL, "m");
	assert_int_equal(found_of(store, space, 0, 5), 5);
	assert_int_equal(cairn_close(store), 0);
	sim_rot(world.sim, "s/cairn.id", 8192 + 33, 1);
	assert_int_equal(world_try(&world, &store), CAIRN_E_CORRUPT);
	assert_non_null(strstr(cairn_error_text(), "fsck"));
	world_done(&world);
}

static void test_recover__refuses_when_written_by_newer(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 10, 16 * MIB, 8 * MIB);
	world.options.write_version = FMT_VERSION + 1;
	cairn *store;
	assert_int_equal(world_try(&world, &store), CAIRN_E_INVAL);
	world.options.write_version = FMT_VERSION;
	store = world_open(&world);
	assert_int_equal(cairn_close(store), 0);
	/* The same bytes with a higher version, and a checksum that agrees. */
	uint64_t size;
	for (int copy = 0; copy < 2; copy++) {
		uint8_t *bytes = sim_file_bytes(world.sim, "s/cairn.id", &size) + copy * 8192;
		uint64_t magic;
		memcpy(&magic, bytes, 8);
		bytes_set32(bytes + 8, 9);
		memset(bytes + 24, 0, 8);
		bytes_set64(bytes + 24, digest_xxh3(bytes, 8192, magic));
	}
	assert_int_equal(world_try(&world, &store), CAIRN_E_VERSION);
	assert_non_null(strstr(cairn_error_text(), "newer"));
	world_done(&world);
}

/* A file whose first `length` bytes say that unknown features forbid writing, in both copies. */
static void forbid_writing(struct world *world, const char *path, uint64_t length)
{
	uint64_t size;
	for (int copy = 0; copy < 2; copy++) {
		uint8_t *bytes = sim_file_bytes(world->sim, path, &size) + (uint64_t)copy * length;
		uint64_t magic;
		memcpy(&magic, bytes, 8);
		bytes_set32(bytes + 16, 1u << 31);
		memset(bytes + 24, 0, 8);
		bytes_set64(bytes + 24, digest_xxh3(bytes, length, magic));
	}
}

static void test_recover__only_reads_when_newer_forbids_writing(void **state)
{
	(void)state;
	static const struct {
		const char *path;
		uint64_t length;
	} files[] = {{"s/cairn.id", 8192}, {"s/flash.cairn", 4096}};
	for (size_t i = 0; i < 2; i++) {
		struct world world;
		world_init(&world, 13, 16 * MIB, 8 * MIB);
		cairn *store = world_open(&world);
		cairn_space *space = space_named(store, NULL, "m");
		put_many(store, space, 0, 5, CAIRN_DURABLE_FLASH);
		assert_int_equal(cairn_close(store), 0);
		forbid_writing(&world, files[i].path, files[i].length);
		assert_int_equal(world_try(&world, &store), CAIRN_E_RDONLY);
		assert_non_null(strstr(cairn_error_text(), "newer"));
		world.options.flags |= CAIRN_OPEN_READONLY;
		store = world_open(&world);
		space = space_named(store, NULL, "m");
		assert_int_equal(found_of(store, space, 0, 5), 5);
		assert_int_equal(cairn_close(store), 0);
		world_done(&world);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_recover__reads_no_payload_when_closed_cleanly),
		cmocka_unit_test(test_recover__uses_checkpoint_when_many_segments_are_sealed),
		cmocka_unit_test(test_recover__reads_little_payload_when_killed),
		cmocka_unit_test(test_recover__knows_use_when_killed_at_90_percent),
		cmocka_unit_test(test_recover__loses_one_part_when_its_payload_rots),
		cmocka_unit_test(test_recover__keeps_part_when_read_fails),
		cmocka_unit_test(test_recover__opens_when_pages_are_damaged_at_random),
		cmocka_unit_test(test_recover__discards_doubtful_when_ledger_has_hole),
		cmocka_unit_test(test_recover__forgets_torn_parts_when_opened_twice),
		cmocka_unit_test(test_recover__opens_when_one_label_is_damaged),
		cmocka_unit_test(test_recover__refuses_when_identity_is_damaged_twice),
		cmocka_unit_test(test_recover__refuses_when_written_by_newer),
		cmocka_unit_test(test_recover__only_reads_when_newer_forbids_writing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
