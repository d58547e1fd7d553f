/* SPDX-License-Identifier: Apache-2.0 */
/* Faults of the store's promises (tests/faults/store.txt), each made visible by the shortest way to it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/store_lib.h"

enum { LENGTH = 20000 };

static struct catalog_entry *entry_of(cairn *store, const cairn_space *space, const cairn_key *key, uint32_t part)
{
	uint32_t entry = catalog_find(store->catalog, space->number, key->bytes, part);
	return entry ? catalog_at(store->catalog, entry) : NULL;
}

static cairn *memory_only(struct world *world)
{
	world_init(world, 1, 16 * MIB, 8 * MIB);
	world->options.flags = CAIRN_OPEN_NO_FLASH;
	world->options.nflash = 0;
	return world_open(world);
}

/* ---- what is delivered ------------------------------------------------------------------------------------------- */

static void rot_in_flash(struct world *world, cairn *store, const cairn_space *space, const cairn_key *key,
                         uint32_t part)
{
	const struct catalog_entry *e = entry_of(store, space, key, part);
	struct fmt_label label;
	uint64_t size;
	assert_true(e && (e->flags & CATALOG_FLASH));
	assert_int_equal(segment_label_decode(sim_file_bytes(world->sim, WORLD_FLASH, &size), &label), FMT_OK);
	sim_rot(world->sim, WORLD_FLASH, label.segments_offset + e->page * 4096ull + 1234, 1);
}

static void test_faults_store__finds_damage_once_when_flash_rots(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 2, 16 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	cairn_key key = key_at(1, 0);
	put_good(store, space, &key, NULL, LENGTH, CAIRN_DURABLE_FLASH);
	store = world_reopen(&world, store);
	space = space_named(store, NULL, "m");
	rot_in_flash(&world, store, space, &key, 0);
	assert_int_equal(get_status(store, space, &key, LENGTH), CAIRN_DAMAGED);
	assert_int_equal(get_status(store, space, &key, LENGTH), CAIRN_MISS);
	world_run(&world, store, 100); /* the quarantine is not waited for */
	for (int reopen = 0; reopen < 2; reopen++) {
		store = reopen ? world_reopen(&world, store) : world_reopen_dead(&world, store, 1);
		space = space_named(store, NULL, "m");
		assert_int_equal(get_status(store, space, &key, LENGTH), CAIRN_MISS);
		assert_int_equal(stat_of(store).tier[CAIRN_TIER_FLASH].damaged_parts, 0);
	}
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

struct peek {
	cairn *store;
	cairn_space *space;
	cairn_key key;
	int calls;
};

static int peek_fence(void *arg)
{
	struct peek *peek = arg;
	peek->calls++;
	assert_int_equal(get_status(peek->store, peek->space, &peek->key, LENGTH), CAIRN_MISS);
	assert_int_equal(match_tokens(peek->store, peek->space, 1, 1), 0);
	return 0;
}

/* The fence of a region is called when the slot was taken and nothing is in it yet. */
static void test_faults_store__shows_nothing_when_writer_has_not_finished(void **state)
{
	(void)state;
	struct world world;
	struct peek peek = {.store = memory_only(&world), .key = key_at(1, 0)};
	peek.space = space_named(peek.store, NULL, "m");
	uint8_t *bytes = malloc(LENGTH);
	pattern_fill(bytes, LENGTH, &peek.key, 0, 0);
	struct cairn_region_desc desc = {.size = sizeof desc, .fd = -1, .address = bytes, .length = LENGTH,
	                                 .fence = peek_fence, .fence_arg = &peek};
	cairn_region *region;
	assert_int_equal(cairn_region_register(peek.store, &desc, &region), 0);
	struct cairn_buf buf = {region, 0, LENGTH};
	struct cairn_item item = {.key = peek.key, .bufs = &buf, .nbufs = 1};
	assert_int_equal(cairn_put(peek.store, peek.space, &item, 1, NULL), 1);
	assert_int_equal(peek.calls, 1);
	assert_int_equal(get_status(peek.store, peek.space, &peek.key, LENGTH), CAIRN_OK);
	assert_int_equal(cairn_region_unregister(peek.store, region), 0);
	free(bytes);
	assert_int_equal(cairn_close(peek.store), 0);
	world_done(&world);
}

/* ---- limits ------------------------------------------------------------------------------------------------------ */

/* A device that does not answer for minutes: get, lease and durable put are back when they said. */
static void test_faults_store__is_late_when_device_is_slow(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 4, 16 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	cairn_key key = key_at(1, 0), second = key_at(2, 0);
	put_good(store, space, &key, NULL, LENGTH, CAIRN_DURABLE_FLASH);
	put_good(store, space, &second, NULL, LENGTH, CAIRN_DURABLE_FLASH);
	store = world_reopen(&world, store);
	space = space_named(store, NULL, "m");
	struct sim_faults faults = {.slow_ppm = 1000000, .slow_ns_max = 1000000000000ull};
	sim_set_faults(world.sim, NULL, &faults);
	uint64_t start = clock_mono_ns(store->clock);
	uint8_t *bytes = malloc(LENGTH);
	memset(bytes, 0x77, LENGTH);
	struct cairn_buf buf = cairn_buf_of(bytes, LENGTH);
	struct cairn_item item = {.key = key, .bufs = &buf, .nbufs = 1};
	struct cairn_call call = {.size = sizeof call, .timeout_ms = 50};
	assert_int_equal(cairn_get(store, space, &item, 1, &call), 0);
	assert_int_equal(item.status, CAIRN_E_LATE);
	for (uint32_t i = 0; i < LENGTH; i++)
		assert_int_equal(bytes[i], 0x77); /* not touched */
	free(bytes);
	cairn_lease *lease;
	item = (struct cairn_item){.key = second};
	assert_int_equal(cairn_lease_take(store, space, &item, &call, &lease), CAIRN_E_LATE);
	struct put_one put = {.key = key_at(3, 0), .length = LENGTH, .durability = CAIRN_DURABLE_FLASH, .timeout_ms = 50};
	assert_int_equal(put_item(store, space, &put).status, CAIRN_E_LATE);
	assert_true(clock_mono_ns(store->clock) - start < 1000000000ull);
	store_abandon(store);
	world_done(&world);
}

static void test_faults_store__misses_when_weights_are_unknown(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 5, 16 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	struct cairn_space_desc desc = lib_desc(NULL, "m");
	desc.weights = NULL;
	cairn_space *space;
	assert_int_equal(cairn_describe(store, &desc, &space), 0);
	cairn_key key = key_at(1, 0);
	assert_int_equal(put_status(store, space, &key, NULL, LENGTH, CAIRN_DURABLE_FLASH), CAIRN_E_UNKNOWN);
	assert_int_equal(get_status(store, space, &key, LENGTH), CAIRN_MISS);
	assert_int_equal(match_tokens(store, space, 1, 1), 0);
	assert_int_equal(stat_of(store).tier[CAIRN_TIER_MEMORY].parts, 0);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

/* ---- what goes with what ----------------------------------------------------------------------------------------- */

static void test_faults_store__removes_block_when_one_part_of_it_rots(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 7, 16 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_of_parts(store, "parts", 3, 4); /* the third is optional */
	cairn_key key = key_at(1, 0);
	for (uint32_t part = 0; part < 3; part++) {
		struct put_one put = {.key = key, .part = part, .length = LENGTH, .durability = CAIRN_DURABLE_FLASH};
		assert_int_equal(put_item(store, space, &put).status, CAIRN_OK);
	}
	store = world_reopen(&world, store);
	space = space_of_parts(store, "parts", 3, 4);
	rot_in_flash(&world, store, space, &key, 2);
	assert_int_equal(get_item(store, space, &key, 2, LENGTH).status, CAIRN_DAMAGED);
	assert_int_equal(match_tokens(store, space, 1, 1), 16); /* it may be missing */
	rot_in_flash(&world, store, space, &key, 0);
	assert_int_equal(get_item(store, space, &key, 0, LENGTH).status, CAIRN_DAMAGED);
	assert_int_equal(get_item(store, space, &key, 1, LENGTH).status, CAIRN_MISS);
	assert_int_equal(match_tokens(store, space, 1, 1), 0);
	verify(store);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

static void test_faults_store__drops_all_parts_when_block_is_dropped(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 8, 16 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_of_parts(store, "parts", 3, 6);
	cairn_key key = key_at(1, 0);
	for (uint32_t part = 0; part < 3; part++) {
		struct put_one put = {.key = key, .part = part, .length = LENGTH, .durability = CAIRN_DURABLE_FLASH};
		assert_int_equal(put_item(store, space, &put).status, CAIRN_OK);
	}
	assert_int_equal(cairn_drop(store, space, &key, 1), 3);
	for (int dead = 0; dead < 2; dead++) {
		for (uint32_t part = 0; part < 3; part++)
			assert_int_equal(get_item(store, space, &key, part, LENGTH).status, CAIRN_MISS);
		store = world_reopen_dead(&world, store, dead);
		space = space_of_parts(store, "parts", 3, 6);
	}
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_faults_store__finds_damage_once_when_flash_rots),
		cmocka_unit_test(test_faults_store__shows_nothing_when_writer_has_not_finished),
		cmocka_unit_test(test_faults_store__is_late_when_device_is_slow),
		cmocka_unit_test(test_faults_store__misses_when_weights_are_unknown),
		cmocka_unit_test(test_faults_store__removes_block_when_one_part_of_it_rots),
		cmocka_unit_test(test_faults_store__drops_all_parts_when_block_is_dropped),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
