/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store's use of memory as its process sees it: no more than was asked for, the same after many requests, right
 * bytes for hundreds of threads, reads when all of memory is leased or being written.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <malloc.h>

#include "unit/store_lib.h"

/* Bytes that this process alone accounts for: private pages, and its share of those it maps from files and memfds. */
static uint64_t footprint(void)
{
	char line[256];
	unsigned long long kib = 0;
	FILE *file = fopen("/proc/self/smaps_rollup", "r");
	assert_non_null(file);
	while (fgets(line, sizeof line, file))
		if (sscanf(line, "Pss: %llu kB", &kib) == 1)
			break;
	fclose(file);
	assert_true(kib > 0);
	return (uint64_t)kib << 10;
}

static int sanitized(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return 1;
#else
	return 0;
#endif
}

static void test_store_limits__takes_what_was_asked_when_filled_three_times(void **state)
{
	(void)state;
	enum {
		LENGTH = 100000
	};
	if (sanitized())
		skip(); /* a sanitizer's own memory is many times the store's */
	not_over(SERVED_UCX, "its library takes memory of its own");
	struct place place;
	place_init(&place, 256 * MIB, 128 * MIB);
	place.options.catalog_bytes = 16 * MIB;
	uint64_t before = footprint();
	cairn *store = place_open(&place);
	cairn_space *space = space_named(store, NULL, "m");
	for (uint64_t chain = 0; chain < 400; chain++)
		assert_true(put_chain(store, space, chain, 0, 10, LENGTH, 0) == 10);
	(void)malloc_trim(0);
	uint64_t taken = footprint() - before;
	/* Beside memory and catalog: the memory tier's tables, groups, events, requests, the ledger's buffers. */
	if (taken > (128 + 16 + 8) * MIB)
		fail_msg("%llu MiB are taken by a store of 128 MiB of memory and a catalog of 16",
		         (unsigned long long)(taken >> 20));
	assert_int_equal(cairn_close(store), 0);
	assert_true(footprint() < before + 16 * MIB);
	place_done(&place);
}

static void test_store_limits__is_no_larger_when_requests_are_cancelled(void **state)
{
	(void)state;
	enum {
		LENGTH = 10000,
		CYCLES = 60000
	};
	struct place place;
	place_init(&place, 64 * MIB, 16 * MIB);
	cairn *store = place_open(&place);
	cairn_space *space = space_named(store, NULL, "m");
	put_chain(store, space, 1, 0, 8, LENGTH, CAIRN_DURABLE_FLASH);
	cairn_queue *queue;
	assert_int_equal(cairn_queue_open(store, 16, &queue), 0);
	uint8_t *bytes = malloc(LENGTH);
	struct cairn_buf buf = cairn_buf_of(bytes, LENGTH);
	struct cairn_item items[16];
	struct cairn_completion done[16];
	uint64_t early = 0, completed = 0, cancelled = 0;
	for (uint32_t cycle = 0; cycle < CYCLES; cycle++) {
		struct cairn_item *item = &items[cycle % 16];
		*item = (struct cairn_item){.key = key_at(1, cycle % 8), .bufs = &buf, .nbufs = 1};
		int error = cairn_get_submit(queue, space, item, 1, NULL, cycle);
		if (!error && cycle % 3)
			cancelled += !cairn_cancel(queue, cycle);
		long n = cairn_queue_wait(queue, done, 16, error == CAIRN_E_BUSY || cycle % 16 == 15 ? -1 : 0);
		assert_true(n >= 0);
		completed += (uint64_t)n;
		if (error) {
			assert_int_equal(error, CAIRN_E_BUSY);
			cycle--;
			continue;
		}
		while (cycle % 16 == 15 && completed <= cycle) /* items are used again */
			completed += (uint64_t)cairn_queue_wait(queue, done, 16, -1);
		if (cycle == CYCLES / 4)
			early = mallinfo2().uordblks;
	}
	assert_int_equal(completed, CYCLES);
	assert_true(cancelled > 0);
	if (!sanitized())
		assert_true(mallinfo2().uordblks < early + 65536);
	cairn_queue_close(queue);
	struct cairn_stat stat = {.size = sizeof stat};
	assert_int_equal(cairn_stat(store, &stat), 0);
	assert_int_equal(stat.leased_bytes, 0);
	assert_int_equal(stat.matches, 0);
	assert_int_equal(cairn_close(store), 0); /* checks that no slot is in use */
	free(bytes);
	place_done(&place);
}

/* ---- hundreds of threads, batches of one to thousands ------------------------------------------------------------ */

enum {
	CROWD = 256,
	CROWD_LENGTH = 4096,
	CROWD_KEYS = 3000
};

struct crowd {
	cairn *store;
	cairn_space *space;
	uint32_t wrong; /* atomic */
	pthread_t thread[CROWD];
	uint32_t next; /* atomic */
};

static void *crowd_member(void *arg)
{
	struct crowd *crowd = arg;
	uint32_t number = __atomic_fetch_add(&crowd->next, 1, __ATOMIC_RELAXED);
	static const uint32_t sizes[] = {1, 2, 7, 40, 130, 700, 3000};
	uint32_t n = sizes[number % 7];
	struct cairn_item *items = calloc(n, sizeof *items);
	struct cairn_buf *bufs = calloc(n, sizeof *bufs);
	uint8_t *bytes = malloc((size_t)n * CROWD_LENGTH);
	for (int put = 1; put >= 0; put--) {
		for (uint32_t i = 0; i < n; i++) {
			cairn_key key = key_at(5, (number * 37 + i) % CROWD_KEYS);
			bufs[i] = cairn_buf_of(bytes + (size_t)i * CROWD_LENGTH, CROWD_LENGTH);
			items[i] = (struct cairn_item){.key = key, .bufs = &bufs[i], .nbufs = 1};
			if (put)
				pattern_fill(bytes + (size_t)i * CROWD_LENGTH, CROWD_LENGTH, &key, 0, 0);
		}
		long good = put ? cairn_put(crowd->store, crowd->space, items, n, NULL)
		                : cairn_get(crowd->store, crowd->space, items, n, NULL);
		int wrong = good < 0;
		for (uint32_t i = 0; i < n && !put; i++)
			wrong |= items[i].status == CAIRN_OK &&
			         !pattern_is(bytes + (size_t)i * CROWD_LENGTH, CROWD_LENGTH, &items[i].key, 0, 0);
		if (wrong)
			__atomic_fetch_add(&crowd->wrong, 1, __ATOMIC_RELAXED);
	}
	free(items);
	free(bufs);
	free(bytes);
	return NULL;
}

static void test_store_limits__serves_right_bytes_when_hundreds_ask(void **state)
{
	(void)state;
	struct place place;
	place_init(&place, 64 * MIB, 8 * MIB); /* less than all keys: it evicts meanwhile */
	struct crowd crowd = {.store = place_open(&place)};
	crowd.space = space_named(crowd.store, NULL, "m");
	for (uint32_t i = 0; i < CROWD; i++)
		assert_int_equal(pthread_create(&crowd.thread[i], NULL, crowd_member, &crowd), 0);
	for (uint32_t i = 0; i < CROWD; i++)
		pthread_join(crowd.thread[i], NULL);
	assert_int_equal(crowd.wrong, 0);
	uint32_t found = 0;
	for (uint32_t i = 0; i < CROWD_KEYS; i++) {
		cairn_key key = key_at(5, i);
		found += get_status(crowd.store, crowd.space, &key, CROWD_LENGTH) == CAIRN_OK;
	}
	assert_int_equal(found, CROWD_KEYS); /* flash has room for all */
	assert_int_equal(cairn_close(crowd.store), 0);
	place_done(&place);
}

/* What comes from flash lands in memory: it must find room beside what is leased. */
static void test_store_limits__reads_flash_when_memory_is_leased(void **state)
{
	(void)state;
	not_over(SERVED_TCP, "a lease is a copy there");
	enum {
		LENGTH = 500000,
		BLOCKS = 60
	};
	struct world world;
	world_init(&world, 7, 64 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	assert_int_equal(put_chain(store, space, 1, 0, BLOCKS, LENGTH, CAIRN_DURABLE_FLASH), BLOCKS);
	cairn_lease *leases[BLOCKS];
	uint32_t nleases = 0;
	for (int status = 0; !status && nleases < BLOCKS; nleases += !status) {
		struct cairn_item item = {.key = key_at(1, nleases)};
		status = cairn_lease_take(store, space, &item, NULL, &leases[nleases]);
		assert_true(!status || status == CAIRN_E_BUSY);
	}
	assert_true(nleases > 1 && nleases < BLOCKS); /* half of memory, at most */
	for (uint32_t i = nleases; i < BLOCKS; i++) {
		cairn_key key = key_at(1, i);
		assert_int_equal(get_status(store, space, &key, LENGTH), CAIRN_OK);
	}
	for (uint32_t i = 0; i < nleases; i++)
		cairn_lease_release(store, leases[i]);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_store_limits__takes_what_was_asked_when_filled_three_times),
		cmocka_unit_test(test_store_limits__is_no_larger_when_requests_are_cancelled),
		cmocka_unit_test(test_store_limits__serves_right_bytes_when_hundreds_ask),
		cmocka_unit_test(test_store_limits__reads_flash_when_memory_is_leased),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
