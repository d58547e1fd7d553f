/* SPDX-License-Identifier: Apache-2.0 */
/* src/store/put.c: what a put keeps, refuses, and writes down. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sys/mman.h>

#include "unit/store_lib.h"

static void test_store_put__keeps_first_bytes_when_put_again(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 1, 16 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	struct put_one put = {.key = key_at(1, 0), .length = 5000};
	assert_int_equal(put_item(store, space, &put).status, CAIRN_OK);
	struct cairn_item same = put_item(store, space, &put);
	assert_int_equal(same.status, CAIRN_EXISTED);
	assert_int_equal(stat_of(store).put_exists, 1);
	assert_int_equal(stat_of(store).put_conflicts, 0);
	put.version = 1;
	assert_int_equal(put_item(store, space, &put).status, CAIRN_EXISTED);
	assert_int_equal(stat_of(store).put_conflicts, 1);
	assert_int_equal(get_status(store, space, &put.key, 5000), CAIRN_OK);
	put.length = 5001;
	struct cairn_item other = put_item(store, space, &put);
	assert_int_equal(other.status, CAIRN_E_CONFLICT);
	assert_int_equal(other.ret_bytes, 5000);
	assert_int_equal(get_status(store, space, &put.key, 5000), CAIRN_OK);
	/* The same from flash alone, after a reopen. */
	store = world_reopen(&world, store);
	space = space_named(store, NULL, "m");
	assert_int_equal(put_item(store, space, &put).status, CAIRN_E_CONFLICT);
	put.length = 5000;
	assert_int_equal(put_item(store, space, &put).status, CAIRN_EXISTED);
	assert_int_equal(stat_of(store).put_conflicts, 1);
	assert_int_equal(get_status(store, space, &put.key, 5000), CAIRN_OK);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

static void test_store_put__writes_down_when_memory_only(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 2, 16 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	/* A tail goes to flash with its session only: it stays in memory until somebody asks for more. */
	struct put_one put = {.key = key_at(1, 0), .length = 70000, .flags = CAIRN_ITEM_TAIL};
	struct cairn_item item = put_item(store, space, &put);
	assert_int_equal(item.status, CAIRN_OK);
	assert_int_equal(item.ret_tier, CAIRN_TIER_MEMORY);
	assert_int_equal(cairn_sync(store), 0);
	assert_int_equal(stat_of(store).tier[CAIRN_TIER_FLASH].parts, 0);
	put.durability = CAIRN_DURABLE_FLASH;
	item = put_item(store, space, &put);
	assert_int_equal(item.status, CAIRN_EXISTED);
	assert_int_equal(item.ret_tier, CAIRN_TIER_FLASH);
	assert_int_equal(stat_of(store).tier[CAIRN_TIER_FLASH].parts, 1);
	store = world_reopen_dead(&world, store, 1);
	space = space_named(store, NULL, "m");
	assert_int_equal(get_status(store, space, &put.key, 70000), CAIRN_OK);
	store_abandon(store);
	world_done(&world);
}

static void test_store_put__is_durable_when_asked(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 6; seed++) {
		struct world world;
		world_init(&world, seed, 24 * MIB, 8 * MIB);
		cairn *store = world_open(&world);
		cairn_space *space = space_named(store, NULL, "m");
		for (uint32_t i = 0; i < 40; i++) {
			cairn_key key = key_at(seed, i), parent = key_at(seed, i - 1);
			put_good(store, space, &key, i ? &parent : NULL, 1 + i * 1311,
			         i % 3 ? CAIRN_DURABLE_FLASH : CAIRN_DURABLE_NONE);
		}
		store = world_reopen_dead(&world, store, 1);
		space = space_named(store, NULL, "m");
		for (uint32_t i = 0; i < 40; i++) {
			cairn_key key = key_at(seed, i);
			int status = get_status(store, space, &key, 1 + i * 1311);
			assert_true(status == CAIRN_OK || (status == CAIRN_MISS && i % 3 == 0));
		}
		verify(store);
		store_abandon(store);
		world_done(&world);
	}
}

static void test_store_put__refuses_sizes_that_do_not_fit(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 3, 16 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	cairn_key key = key_at(1, 0);
	assert_int_equal(put_status(store, space, &key, NULL, 0, 0), CAIRN_E_SIZE);
	assert_int_equal(put_status(store, space, &key, NULL, (uint32_t)MIB / 2 + 1, 0), CAIRN_E_SIZE);
	assert_non_null(strstr(cairn_error_text(), "524288"));
	put_good(store, space, &key, NULL, (uint32_t)MIB / 2, CAIRN_DURABLE_FLASH);
	assert_int_equal(get_status(store, space, &key, (uint32_t)MIB / 2), CAIRN_OK);
	/* A buffer that is too small is told the size. */
	struct cairn_item item = get_item(store, space, &key, 0, 4096);
	assert_int_equal(item.status, CAIRN_E_SIZE);
	assert_int_equal(item.ret_bytes, MIB / 2);
	/* The declared size of a block holds for blocks, not for tails. */
	struct cairn_space_desc desc = lib_desc(NULL, "sized");
	desc.block_bytes = 4096;
	cairn_space *sized;
	assert_int_equal(cairn_describe(store, &desc, &sized), 0);
	assert_int_equal(put_status(store, sized, &key, NULL, 4097, 0), CAIRN_E_SIZE);
	assert_int_equal(put_status(store, sized, &key, NULL, 4096, 0), CAIRN_OK);
	struct put_one tail = {.key = key_at(1, 1), .length = 100, .flags = CAIRN_ITEM_TAIL};
	assert_int_equal(put_item(store, sized, &tail).status, CAIRN_OK);
	/* A space whose weights nobody knows. */
	desc.weights = NULL;
	cairn_space *unknown;
	assert_int_equal(cairn_describe(store, &desc, &unknown), 0);
	assert_int_equal(put_status(store, unknown, &key, NULL, 4096, 0), CAIRN_E_UNKNOWN);
	assert_int_equal(get_status(store, unknown, &key, 4096), CAIRN_MISS);
	verify(store);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

static void test_store_put__takes_any_buffers_when_scattered(void **state)
{
	(void)state;
	enum {
		RUNS = 1025,
		LENGTH = 300001
	};
	struct world world;
	world_init(&world, 4, 16 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	uint8_t *source = malloc(2 * LENGTH + RUNS), *sink = malloc(2 * LENGTH + RUNS), *whole = malloc(LENGTH);
	struct cairn_buf from[RUNS], to[RUNS];
	for (int round = 0; round < 3; round++) {
		cairn_key key = key_at(9, (uint64_t)round);
		struct random random;
		random_init(&random, (uint64_t)round);
		uint32_t runs = round == 0 ? 1 : round == 1 ? 1024 : RUNS;
		pattern_fill(whole, LENGTH, &key, 0, 0);
		/* Odd lengths (some of them 0) at odd addresses. */
		size_t at = 0, place = 1;
		for (uint32_t i = 0; i < runs; i++) {
			size_t left = LENGTH - at;
			size_t take = i + 1 == runs ? left : random_below(&random, 2 * LENGTH / runs);
			take = take < left ? take : left;
			memcpy(source + place, whole + at, take);
			from[i] = cairn_buf_of(source + place, take);
			to[runs - 1 - i] = cairn_buf_of(sink + place, take);
			place += take + random_below(&random, 2);
			at += take;
		}
		struct cairn_item item = {.key = key, .bufs = from, .nbufs = runs};
		assert_int_equal(cairn_put(store, space, &item, 1, NULL), 1);
		assert_true(item.ret_check == cairn_check(whole, LENGTH));
		assert_int_equal(get_status(store, space, &key, LENGTH), CAIRN_OK);
		item.bufs = to;
		assert_int_equal(cairn_get(store, space, &item, 1, NULL), 1);
		for (uint32_t i = 0, done = 0; i < runs; done += (uint32_t)to[i].length, i++)
			assert_memory_equal((void *)(uintptr_t)to[i].offset, whole + done, to[i].length);
	}
	free(source);
	free(sink);
	free(whole);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

/* 23,052 x 256 bytes: a block of a large model, from many small runs. */
static void test_store_put__is_exact_when_block_is_23052_times_256(void **state)
{
	(void)state;
	enum {
		UNIT = 23052,
		UNITS = 256,
		LENGTH = UNIT * UNITS
	};
	struct world world;
	world_init(&world, 5, 128 * MIB, 64 * MIB);
	world.options.segment_bytes = 16 * MIB;
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	uint8_t *memory = malloc((size_t)UNITS * (UNIT + 5)), *whole = malloc(LENGTH);
	struct cairn_buf bufs[UNITS];
	cairn_key key = key_at(1, 0);
	pattern_fill(whole, LENGTH, &key, 0, 0);
	for (size_t i = 0; i < UNITS; i++) {
		uint8_t *at = memory + i * (UNIT + 5) + 3;
		memcpy(at, whole + i * UNIT, UNIT);
		bufs[i] = cairn_buf_of(at, UNIT);
	}
	struct cairn_item item = {.key = key, .bufs = bufs, .nbufs = UNITS};
	struct cairn_call call = {.size = sizeof call, .durability = CAIRN_DURABLE_FLASH};
	assert_int_equal(cairn_put(store, space, &item, 1, &call), 1);
	store = world_reopen_dead(&world, store, 0);
	space = space_named(store, NULL, "m");
	memset(memory, 0, (size_t)UNITS * (UNIT + 5));
	assert_int_equal(cairn_get(store, space, &item, 1, NULL), 1);
	for (size_t i = 0; i < UNITS; i++)
		assert_memory_equal(memory + i * (UNIT + 5) + 3, whole + i * UNIT, UNIT);
	free(memory);
	free(whole);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

static int fence_calls;
static int fence_count(void *arg)
{
	fence_calls += *(int *)arg;
	return 0;
}

static void test_store_put__reads_regions_when_registered(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 6, 16 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	int one = 1, fd = memfd_create("region", MFD_CLOEXEC);
	assert_int_equal(ftruncate(fd, 3 * 65536), 0);
	uint8_t *memory = malloc(65536);
	cairn_region *by_fd, *by_pointer, *none;
	struct cairn_region_desc desc = {
		.size = sizeof desc, .fd = fd, .length = 65536, .fd_offset = 65536, .fence = fence_count, .fence_arg = &one};
	assert_int_equal(cairn_region_register(store, &desc, &by_fd), 0);
	desc = (struct cairn_region_desc){.size = sizeof desc, .fd = -1, .address = memory, .length = 65536};
	assert_int_equal(cairn_region_register(store, &desc, &by_pointer), 0);
	desc.kind = CAIRN_REGION_CUDA;
	assert_int_equal(cairn_region_register(store, &desc, &none), CAIRN_E_INVAL);
	desc = (struct cairn_region_desc){.size = sizeof desc, .fd = -1, .length = 1};
	assert_int_equal(cairn_region_register(store, &desc, &none), CAIRN_E_INVAL);
	cairn_key key = key_at(1, 0);
	uint8_t bytes[9000];
	pattern_fill(bytes, sizeof bytes, &key, 0, 0);
	assert_int_equal(pwrite(fd, bytes, sizeof bytes, 65536 + 77), sizeof bytes);
	struct cairn_buf buf = {by_fd, 77, sizeof bytes};
	struct cairn_item item = {.key = key, .bufs = &buf, .nbufs = 1};
	fence_calls = 0;
	assert_int_equal(cairn_put(store, space, &item, 1, NULL), 1);
	assert_int_equal(fence_calls, 1);
	buf = (struct cairn_buf){by_pointer, 65536 - 9000, 9000};
	assert_int_equal(cairn_get(store, space, &item, 1, NULL), 1);
	assert_memory_equal(memory + 65536 - 9000, bytes, 9000);
	buf = (struct cairn_buf){by_pointer, 65536 - 8999, 9000};
	assert_int_equal(cairn_get(store, space, &item, 1, NULL), 0);
	assert_int_equal(item.status, CAIRN_E_INVAL);
	buf = (struct cairn_buf){by_pointer, UINT64_MAX, 9000};
	assert_int_equal(cairn_put(store, space, &item, 1, NULL), 0);
	assert_int_equal(item.status, CAIRN_E_INVAL);
	assert_int_equal(cairn_region_unregister(store, by_fd), 0);
	assert_int_equal(cairn_region_unregister(store, by_pointer), 0);
	close(fd);
	free(memory);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

/* A batch in which one block is refused: the blocks behind it would be a chain with a hole. */
static void test_store_put__refuses_rest_of_chain_when_block_is_refused(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 7, 16 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	uint8_t bytes[1000];
	memset(bytes, 1, sizeof bytes);
	struct cairn_buf good = cairn_buf_of(bytes, sizeof bytes), bad = cairn_buf_of(bytes, 0);
	cairn_key keys[6];
	struct cairn_item items[6];
	for (uint32_t i = 0; i < 6; i++) {
		keys[i] = key_at(1, i);
		items[i] = (struct cairn_item){
			.key = keys[i], .parent = i ? &keys[i - 1] : NULL, .bufs = i == 3 ? &bad : &good, .nbufs = 1};
	}
	assert_int_equal(cairn_put(store, space, items, 6, NULL), 3);
	for (uint32_t i = 0; i < 6; i++)
		assert_int_equal(items[i].status, i < 3 ? CAIRN_OK : CAIRN_E_SIZE);
	assert_int_equal(match_tokens(store, space, 1, 6), 3 * 16);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

/* More than memory holds, in one call: it streams through. */
static void test_store_put__streams_when_batch_is_larger_than_memory(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 8, 64 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	for (int durable = 0; durable < 2; durable++) {
		assert_int_equal(put_chain(store, space, 10 + (uint64_t)durable, 0, 150, 100000,
		                           durable ? CAIRN_DURABLE_FLASH : CAIRN_DURABLE_NONE),
		                 150);
		assert_int_equal(match_tokens(store, space, 10 + (uint64_t)durable, 150), 150 * 16);
		verify(store);
	}
	for (uint32_t i = 0; i < 300; i++) {
		cairn_key key = key_at(10 + i % 2, i / 2);
		assert_int_equal(get_status(store, space, &key, 100000), CAIRN_OK);
	}
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

/* The same key twice in one batch, and twice the same batch. */
static void test_store_put__is_idempotent_when_repeated(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 9, 16 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	cairn_key key = key_at(1, 0);
	uint8_t bytes[4000];
	pattern_fill(bytes, sizeof bytes, &key, 0, 0);
	struct cairn_buf buf = cairn_buf_of(bytes, sizeof bytes);
	struct cairn_item items[3];
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < 3; i++)
			items[i] = (struct cairn_item){.key = key, .bufs = &buf, .nbufs = 1};
		struct cairn_call call = {.size = sizeof call, .durability = CAIRN_DURABLE_FLASH};
		assert_int_equal(cairn_put(store, space, items, 3, &call), 3);
		assert_int_equal(items[0].status, round ? CAIRN_EXISTED : CAIRN_OK);
		assert_int_equal(items[1].status, CAIRN_EXISTED);
		assert_int_equal(items[2].status, CAIRN_EXISTED);
	}
	struct cairn_stat stat = stat_of(store);
	assert_int_equal(stat.tier[CAIRN_TIER_FLASH].written_parts, 1);
	assert_int_equal(stat.tier[CAIRN_TIER_FLASH].parts, 1);
	assert_int_equal(stat.put_conflicts, 0);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

/* A device that fails every write: durable puts say so, blocks stay readable from memory, another device takes over. */
static void test_store_put__says_io_when_device_fails(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 10, 16 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	cairn_key before = key_at(1, 0), key = key_at(2, 0);
	put_good(store, space, &before, NULL, 10000, CAIRN_DURABLE_FLASH);
	struct sim_faults faults = {.write_error_ppm = 1000000};
	sim_set_faults(world.sim, NULL, &faults);
	assert_int_equal(put_status(store, space, &key, NULL, 10000, CAIRN_DURABLE_FLASH), CAIRN_E_IO);
	assert_int_equal(put_status(store, space, &key, NULL, 10000, CAIRN_DURABLE_FLASH), CAIRN_E_IO);
	assert_int_equal(get_status(store, space, &key, 10000), CAIRN_OK);
	assert_int_equal(get_status(store, space, &before, 10000), CAIRN_OK);
	assert_true(stat_of(store).tier[CAIRN_TIER_FLASH].errors > 0);
	assert_int_equal(stat_of(store).device[0].state, 1);
	verify(store);
	/* It heals. */
	faults.write_error_ppm = 0;
	sim_set_faults(world.sim, NULL, &faults);
	sim_advance(world.sim, 6000000000ull);
	assert_int_equal(put_status(store, space, &key, NULL, 10000, CAIRN_DURABLE_FLASH), CAIRN_EXISTED);
	assert_int_equal(stat_of(store).device[0].state, 0);
	store = world_reopen_dead(&world, store, 1);
	space = space_named(store, NULL, "m");
	assert_int_equal(get_status(store, space, &key, 10000), CAIRN_OK);
	assert_int_equal(get_status(store, space, &before, 10000), CAIRN_OK);
	store_abandon(store);
	world_done(&world);
}

static void test_store_put__takes_other_device_when_one_refuses(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 11, 16 * MIB, 8 * MIB);
	world.flash[1] = (struct cairn_flash){.path = "d1", .budget_bytes = 16 * MIB};
	world.options.nflash = 2;
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	struct sim_faults faults = {.write_error_ppm = 1000000};
	sim_set_faults(world.sim, "d1", &faults);
	int good = 0;
	for (uint32_t i = 0; i < 20; i++) {
		cairn_key key = key_at(1 + i, 0);
		good += put_status(store, space, &key, NULL, 50000, CAIRN_DURABLE_FLASH) == CAIRN_OK;
	}
	assert_true(good >= 17);
	store_abandon(store);
	world_done(&world);
}

/* A flush that fails after the write: the put is written again, or says IO. Never a promise that was not kept. */
static void test_store_put__keeps_promise_when_flush_fails(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 10; seed++) {
		struct world world;
		world_init(&world, seed, 256 * MIB, 8 * MIB); /* nothing is evicted, though segments are sealed short */
		cairn *store = world_open(&world);
		cairn_space *space = space_named(store, NULL, "m");
		struct sim_faults faults = {.flush_error_ppm = 300000};
		sim_set_faults(world.sim, NULL, &faults);
		uint8_t promised[60] = {0};
		for (uint32_t i = 0; i < 60; i++) {
			cairn_key key = key_at(1 + i, 0);
			int status = put_status(store, space, &key, NULL, 200000, CAIRN_DURABLE_FLASH);
			assert_true(status == CAIRN_OK || status == CAIRN_E_IO);
			promised[i] = status == CAIRN_OK;
			if (status == CAIRN_E_IO)
				sim_advance(world.sim, 2000000000ull);
		}
		verify(store);
		faults.flush_error_ppm = 0;
		sim_set_faults(world.sim, NULL, &faults);
		store = world_reopen_dead(&world, store, 1);
		space = space_named(store, NULL, "m");
		for (uint32_t i = 0; i < 60; i++) {
			cairn_key key = key_at(1 + i, 0);
			int status = get_status(store, space, &key, 200000);
			if (promised[i])
				assert_int_equal(status, CAIRN_OK);
			else
				assert_true(status == CAIRN_OK || status == CAIRN_MISS);
		}
		store_abandon(store);
		world_done(&world);
	}
}

/* A device that never answers: puts go on after a bound, for the whole batch and not for each block of it. */
static void test_store_put__goes_on_when_device_is_stuck(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 12, 128 * MIB, 8 * MIB);
	world.options.segment_bytes = 16 * MIB;
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	cairn_key first = key_at(3, 0);
	put_good(store, space, &first, NULL, 1000, CAIRN_DURABLE_FLASH); /* a segment is open */
	struct sim_faults faults = {.slow_ppm = 1000000, .slow_ns_max = 1000000000000ull};
	sim_set_faults(world.sim, NULL, &faults);
	uint64_t start = clock_mono_ns(sim_clock(world.sim));
	assert_int_equal(put_chain(store, space, 1, 0, 120, 100000, CAIRN_DURABLE_NONE), 120);
	uint64_t took = clock_mono_ns(sim_clock(world.sim)) - start;
	assert_true(took < 10000000000ull);
	/* A durable one has its deadline. */
	struct put_one put = {.key = key_at(2, 0), .length = 1000, .durability = CAIRN_DURABLE_FLASH, .timeout_ms = 100};
	assert_int_equal(put_item(store, space, &put).status, CAIRN_E_LATE);
	verify(store);
	store_abandon(store);
	world_done(&world);
}

/* Losing a part that the space requires takes the rest of the block, also while another part of it is being read. */
static void test_store_put__drops_block_when_required_part_is_evicted(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 13, 32 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_of_parts(store, "parts", 2, 0);
	enum {
		LENGTH = 400000,
		SLOTS = 16
	}; /* 2 MiB extents hold 4 each */
	struct put_one put = {.key = key_at(1, 0), .length = LENGTH, .durability = CAIRN_DURABLE_FLASH};
	assert_int_equal(put_item(store, space, &put).status, CAIRN_OK);
	sim_advance(world.sim, 1000000000ull); /* the first part is older, and goes first */
	struct put_one rest = {
		.key = key_at(1, 0), .part = 1, .length = LENGTH, .flags = CAIRN_ITEM_TAIL}; /* memory only */
	assert_int_equal(put_item(store, space, &rest).status, CAIRN_OK);
	cairn_space *other = space_named(store, NULL, "other");
	sim_advance(world.sim, 1000000000ull);
	for (uint32_t i = 0; i < SLOTS - 1; i++) { /* the last one evicts the first part's copy in memory */
		cairn_key key = key_at(2, i);
		put_good(store, other, &key, NULL, LENGTH, CAIRN_DURABLE_FLASH);
	}
	assert_int_equal(stat_of(store).tier[CAIRN_TIER_MEMORY].evicted_parts, 1);
	/* Reading it from flash takes the place of the second part, the only copy: the block is gone. */
	struct cairn_item item = get_item(store, space, &put.key, 0, LENGTH);
	assert_true(item.status == CAIRN_MISS || item.status == CAIRN_OK);
	assert_int_equal(get_item(store, space, &put.key, 1, LENGTH).status, item.status);
	verify(store);
	store_abandon(store);
	world_done(&world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_store_put__keeps_first_bytes_when_put_again),
		cmocka_unit_test(test_store_put__writes_down_when_memory_only),
		cmocka_unit_test(test_store_put__is_durable_when_asked),
		cmocka_unit_test(test_store_put__refuses_sizes_that_do_not_fit),
		cmocka_unit_test(test_store_put__takes_any_buffers_when_scattered),
		cmocka_unit_test(test_store_put__is_exact_when_block_is_23052_times_256),
		cmocka_unit_test(test_store_put__reads_regions_when_registered),
		cmocka_unit_test(test_store_put__refuses_rest_of_chain_when_block_is_refused),
		cmocka_unit_test(test_store_put__streams_when_batch_is_larger_than_memory),
		cmocka_unit_test(test_store_put__is_idempotent_when_repeated),
		cmocka_unit_test(test_store_put__says_io_when_device_fails),
		cmocka_unit_test(test_store_put__takes_other_device_when_one_refuses),
		cmocka_unit_test(test_store_put__keeps_promise_when_flush_fails),
		cmocka_unit_test(test_store_put__goes_on_when_device_is_stuck),
		cmocka_unit_test(test_store_put__drops_block_when_required_part_is_evicted),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
