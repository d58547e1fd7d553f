/* SPDX-License-Identifier: Apache-2.0 */
/* src/store/get.c: reads, leases, and what a reader sees of damage. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/store_lib.h"

enum {
	LENGTH = 100000
};

/* Flips one bit of a part in the memory tier, as failing memory would. */
static void memory_flip(cairn *store, const cairn_space *space, const cairn_key *key, uint32_t at)
{
	cairn *own = served_inside(store);
	uint32_t number = served_space(store, space)->number;
	pthread_mutex_lock(&own->lock);
	uint32_t slot = catalog_at(own->catalog, catalog_find(own->catalog, number, key->bytes, 0))->slot;
	((uint8_t *)memory_address(own->memory, slot))[at] ^= 1;
	pthread_mutex_unlock(&own->lock);
}

static void test_store_get__zeroes_destination_when_memory_is_damaged(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 1, 16 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	struct put_one put = {.key = key_at(1, 0), .length = LENGTH, .flags = CAIRN_ITEM_TAIL};
	assert_int_equal(put_item(store, space, &put).status, CAIRN_OK);
	memory_flip(store, space, &put.key, LENGTH - 1);
	assert_int_equal(get_status(store, space, &put.key, LENGTH), CAIRN_DAMAGED); /* which looks for zeros */
	assert_int_equal(stat_of(store).tier[CAIRN_TIER_MEMORY].damaged_parts, 1);
	if (!served_kind()) /* a cairnd counts what it hands out: the reader checks it */
		assert_int_equal(stat_of(store).tier[CAIRN_TIER_MEMORY].hits, 0);
	assert_int_equal(get_status(store, space, &put.key, LENGTH), CAIRN_MISS);
	assert_int_equal(why(store, space, &put.key), CAIRN_WHY_DAMAGED);
	/* With a good copy in flash the reader gets that, and memory a new one. */
	cairn_key key = key_at(2, 0);
	put_good(store, space, &key, NULL, LENGTH, CAIRN_DURABLE_FLASH);
	memory_flip(store, space, &key, 0);
	struct cairn_item item = get_item(store, space, &key, 0, LENGTH);
	assert_int_equal(item.status, CAIRN_OK);
	assert_int_equal(item.ret_tier, CAIRN_TIER_FLASH);
	assert_int_equal(get_item(store, space, &key, 0, LENGTH).ret_tier, CAIRN_TIER_MEMORY);
	assert_int_equal(stat_of(store).tier[CAIRN_TIER_MEMORY].damaged_parts, 2);
	verify(store);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

/* Field bugs 27, 35: hits are counted after the check, per tier; one bad block does not hide the others. */
static void test_store_get__counts_exactly_when_scripted(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 2, 32 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	assert_int_equal(put_chain(store, space, 1, 0, 40, LENGTH, CAIRN_DURABLE_FLASH), 40);
	store = world_reopen(&world, store);
	space = space_named(store, NULL, "m");
	uint8_t *bytes = calloc(45, LENGTH);
	struct cairn_item items[45];
	struct cairn_buf bufs[45];
	for (uint32_t i = 0; i < 45; i++) {
		bufs[i] = cairn_buf_of(bytes + (size_t)i * LENGTH, i == 7 ? LENGTH - 1 : LENGTH);
		items[i] = (struct cairn_item){.key = key_at(1, i), .bufs = &bufs[i], .nbufs = 1};
	}
	/* More than memory holds: it streams through. */
	assert_int_equal(cairn_get(store, space, items, 45, NULL), 39);
	for (uint32_t i = 0; i < 45; i++) {
		assert_int_equal(items[i].status, i >= 40 ? CAIRN_MISS : i == 7 ? CAIRN_E_SIZE : CAIRN_OK);
		if (items[i].status == CAIRN_OK)
			assert_true(pattern_is(bytes + (size_t)i * LENGTH, LENGTH, &items[i].key, 0, 0));
	}
	struct cairn_stat stat = stat_of(store);
	assert_int_equal(stat.tier[CAIRN_TIER_FLASH].hits + stat.tier[CAIRN_TIER_MEMORY].hits, 39);
	assert_int_equal(stat.tier[CAIRN_TIER_FLASH].hit_bytes + stat.tier[CAIRN_TIER_MEMORY].hit_bytes, 39 * LENGTH);
	assert_int_equal(stat.misses, 5);
	free(bytes);
	verify(store);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

static void test_store_get__is_late_when_device_is_slow(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 3, 16 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	cairn_key key = key_at(1, 0);
	put_good(store, space, &key, NULL, LENGTH, CAIRN_DURABLE_FLASH);
	store = world_reopen(&world, store);
	space = space_named(store, NULL, "m");
	struct sim_faults faults = {.slow_ppm = 1000000, .slow_ns_max = 60000000000ull};
	sim_set_faults(world.sim, NULL, &faults);
	uint8_t bytes[LENGTH];
	memset(bytes, 0x77, sizeof bytes);
	struct cairn_buf buf = cairn_buf_of(bytes, sizeof bytes);
	struct cairn_item item = {.key = key, .bufs = &buf, .nbufs = 1};
	struct cairn_call call = {.size = sizeof call, .timeout_ms = 50};
	uint64_t start = clock_mono_ns(sim_clock(world.sim));
	assert_int_equal(cairn_get(store, space, &item, 1, &call), 0);
	assert_int_equal(item.status, CAIRN_E_LATE);
	assert_true(clock_mono_ns(sim_clock(world.sim)) - start < 70000000);
	for (size_t i = 0; i < sizeof bytes; i++)
		assert_int_equal(bytes[i], 0x77); /* the destination was not touched */
	/* What still arrives stays. */
	faults.slow_ppm = 0;
	sim_set_faults(world.sim, NULL, &faults);
	assert_int_equal(get_status(store, space, &key, LENGTH), CAIRN_OK);
	assert_int_equal(get_item(store, space, &key, 0, LENGTH).ret_tier, CAIRN_TIER_MEMORY);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

/* ---- leases ------------------------------------------------------------------------------------------------------ */

static cairn_lease *lease_of(cairn *store, const cairn_space *space, const cairn_key *key, int *ret_status)
{
	struct cairn_item item = {.key = *key};
	cairn_lease *lease = NULL;
	*ret_status = cairn_lease_take(store, space, &item, NULL, &lease);
	assert_int_equal(item.status, *ret_status);
	assert_true((lease != NULL) == (*ret_status == 0));
	return lease;
}

/* Field bug 19: what is leased is not used again, whatever wants its place. */
static void test_store_get__keeps_lease_when_all_else_is_evicted(void **state)
{
	(void)state;
	not_over(SERVED_TCP, "a lease is a copy there");
	struct world world;
	world_init(&world, 4, 16 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	cairn_lease *leases[10];
	struct cairn_lease_info infos[10];
	int status;
	for (uint32_t i = 0; i < 10; i++) {
		cairn_key key = key_at(i, 0);
		put_good(store, space, &key, NULL, LENGTH, CAIRN_DURABLE_FLASH);
		leases[i] = lease_of(store, space, &key, &status);
		assert_int_equal(status, 0);
		cairn_lease_get_info(leases[i], &infos[i]);
		assert_int_equal((uintptr_t)infos[i].address % 64, 0);
		assert_int_equal(infos[i].bytes, LENGTH);
		uint8_t first[16];
		assert_int_equal(pread(infos[i].fd, first, 16, (off_t)infos[i].fd_offset), 16);
		assert_memory_equal(first, infos[i].address, 16);
	}
	assert_int_equal(stat_of(store).leased_bytes, 10 * LENGTH);
	for (uint64_t chain = 100; chain < 400; chain++) { /* memory and flash turn over */
		cairn_key key = key_at(chain, 0);
		put_good(store, space, &key, NULL, LENGTH, CAIRN_DURABLE_NONE);
	}
	cairn_key dropped = key_at(3, 0);
	assert_true(cairn_drop(store, space, &dropped, 1) >= 0);
	assert_int_equal(get_status(store, space, &dropped, LENGTH), CAIRN_MISS);
	for (uint32_t i = 0; i < 10; i++) {
		cairn_key key = key_at(i, 0);
		assert_true(pattern_is(infos[i].address, LENGTH, &key, 0, 0));
		assert_true(cairn_check(infos[i].address, LENGTH) == infos[i].check);
		cairn_lease_release(store, leases[i]);
	}
	cairn_lease_release(store, NULL);
	assert_int_equal(stat_of(store).leased_bytes, 0);
	verify(store);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

static void test_store_get__bounds_leases_when_half_is_leased(void **state)
{
	(void)state;
	not_over(SERVED_TCP, "a lease is a copy there");
	struct world world;
	world_init(&world, 5, 32 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	cairn_lease *leases[64];
	uint32_t n = 0;
	int status = 0;
	for (uint32_t i = 0; i < 60 && !status; i++) {
		cairn_key key = key_at(i, 0);
		put_good(store, space, &key, NULL, LENGTH, CAIRN_DURABLE_FLASH);
		leases[n] = lease_of(store, space, &key, &status);
		n += status == 0;
	}
	assert_int_equal(status, CAIRN_E_BUSY);
	assert_true(n * LENGTH <= 4 * MIB && n * LENGTH > 3 * MIB);
	/* A copy is still to be had, also from flash, and another tenant's share is its own. */
	cairn_key key = key_at(59, 0), first = key_at(0, 0);
	assert_int_equal(get_status(store, space, &first, LENGTH), CAIRN_OK);
	put_good(store, space, &key, NULL, LENGTH, CAIRN_DURABLE_FLASH);
	assert_int_equal(get_status(store, space, &key, LENGTH), CAIRN_OK);
	cairn_space *other = space_named(store, "acme", "m");
	put_good(store, other, &key, NULL, LENGTH, CAIRN_DURABLE_FLASH);
	cairn_lease *one = lease_of(store, other, &key, &status);
	assert_int_equal(status, 0);
	cairn_lease_release(store, one);
	while (n)
		cairn_lease_release(store, leases[--n]);
	one = lease_of(store, space, &key, &status);
	assert_int_equal(status, 0);
	cairn_lease_release(store, one);
	cairn_key missing = key_at(999, 0);
	assert_null(lease_of(store, space, &missing, &status));
	assert_int_equal(status, CAIRN_MISS);
	verify(store);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

/* ---- what is not whole ------------------------------------------------------------------------------------------- */

/* Field bug 3, 52: a part whose bytes are on their way is not there; one that failed leaves nothing. */
static void test_store_get__misses_when_block_is_not_whole(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 6, 16 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	cairn_key key = key_at(1, 0);
	cairn *own = served_inside(store);
	const cairn_space *same = served_space(store, space);
	pthread_mutex_lock(&own->lock);
	uint32_t slot = slot_take(own, same->tenant, LENGTH, NULL);
	uint32_t entry = entry_insert(own, same->number, key.bytes, 0);
	struct memory_slot *s = memory_slot(own->memory, slot);
	s->entry = entry;
	memcpy(s->key_rest, key.bytes + 16, 16);
	catalog_at(own->catalog, entry)->slot = slot;
	catalog_at(own->catalog, entry)->length = LENGTH;
	pthread_mutex_unlock(&own->lock);
	assert_int_equal(get_status(store, space, &key, LENGTH), CAIRN_MISS);
	assert_int_equal(match_tokens(store, space, 1, 1), 0);
	int status;
	assert_null(lease_of(store, space, &key, &status));
	assert_int_equal(status, CAIRN_MISS);
	/* Dropped while it is copied: the copier's slot is nobody's any more. */
	assert_int_equal(cairn_drop(store, space, &key, 1), 1);
	pthread_mutex_lock(&own->lock);
	assert_int_equal(memory_slot(own->memory, slot)->entry, 0);
	memory_slot(own->memory, slot)->state = MEMORY_READY;
	slot_release(own, slot);
	pthread_mutex_unlock(&own->lock);
	put_good(store, space, &key, NULL, LENGTH, CAIRN_DURABLE_FLASH);
	assert_int_equal(get_status(store, space, &key, LENGTH), CAIRN_OK);
	verify(store);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

/* Two keys share their first half: the second is a miss, never the first one's bytes; nothing is quarantined. */
static void test_store_get__misses_when_another_key_has_the_prefix(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 7, 16 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	cairn_key key = key_at(1, 0), twin = key;
	twin.bytes[31] ^= 1;
	put_good(store, space, &key, NULL, LENGTH, CAIRN_DURABLE_FLASH);
	assert_int_equal(get_status(store, space, &twin, LENGTH), CAIRN_MISS);
	store = world_reopen(&world, store);
	space = space_named(store, NULL, "m");
	for (int i = 0; i < 3; i++)
		assert_int_equal(get_status(store, space, &twin, LENGTH), CAIRN_MISS);
	assert_int_equal(get_status(store, space, &key, LENGTH), CAIRN_OK);
	assert_int_equal(get_status(store, space, &twin, LENGTH), CAIRN_MISS);
	assert_int_equal(stat_of(store).tier[CAIRN_TIER_FLASH].damaged_parts, 0);
	verify(store);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

/* Field bugs 115, 116, 150: other weights, a reload in place, another type of the same size: a miss, in every tier. */
static void test_store_get__misses_when_identity_differs(void **state)
{
	(void)state;
	static const cairn_digest other = {{0x77}};
	static const uint8_t generation[16] = {9};
	struct world world;
	world_init(&world, 8, 16 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	cairn_key key = key_at(1, 0);
	put_good(store, space, &key, NULL, LENGTH, CAIRN_DURABLE_FLASH);
	for (int round = 0; round < 2; round++) {
		struct cairn_space_desc descs[6];
		for (int i = 0; i < 6; i++)
			descs[i] = lib_desc(NULL, "m");
		descs[0].weights = &other;
		descs[1].generation = generation;
		descs[2].kv_dtype = "f16";
		descs[3].tenant = "acme";
		descs[4].layout = "lktd";
		descs[5].weights = NULL;
		for (int i = 0; i < 6; i++) {
			cairn_space *foreign;
			assert_int_equal(cairn_describe(store, &descs[i], &foreign), 0);
			assert_int_equal(get_status(store, foreign, &key, LENGTH), CAIRN_MISS);
			assert_int_equal(match_tokens(store, foreign, 1, 1), 0);
		}
		assert_int_equal(get_status(store, space, &key, LENGTH), CAIRN_OK);
		store = world_reopen(&world, store);
		space = space_named(store, NULL, "m");
	}
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_store_get__zeroes_destination_when_memory_is_damaged),
		cmocka_unit_test(test_store_get__counts_exactly_when_scripted),
		cmocka_unit_test(test_store_get__is_late_when_device_is_slow),
		cmocka_unit_test(test_store_get__keeps_lease_when_all_else_is_evicted),
		cmocka_unit_test(test_store_get__bounds_leases_when_half_is_leased),
		cmocka_unit_test(test_store_get__misses_when_block_is_not_whole),
		cmocka_unit_test(test_store_get__misses_when_another_key_has_the_prefix),
		cmocka_unit_test(test_store_get__misses_when_identity_differs),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
