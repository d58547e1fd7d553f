/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Faults of a put that only a source which changes under it shows: the checksum must be of the bytes that were stored.
 * The source is mapped twice, so that the thread which changes it shares no address with the library.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <sys/mman.h>

#include "unit/store_lib.h"

struct flipper {
	uint8_t *bytes;
	size_t length;
	int stop;
};

static void *flipper_main(void *arg)
{
	struct flipper *flipper = arg;
	struct random random;
	random_init(&random, 1);
	while (!__atomic_load_n(&flipper->stop, __ATOMIC_RELAXED))
		for (int i = 0; i < 256; i++)
			__atomic_fetch_add(&flipper->bytes[random_below(&random, flipper->length)], 1, __ATOMIC_RELAXED);
	return NULL;
}

static uint64_t now_ms(void)
{
	return clock_mono_ns(&clock_real) / 1000000;
}

/* Whatever mixture of old and new a put takes, it is what its check says, and what every get gives. */
static void test_faults_put__stores_what_it_checked_when_source_changes(void **state)
{
	(void)state;
	enum { LENGTH = 1 << 20, RUN_MS = 600 };
	struct cairn_options options = {.size = sizeof options, .flags = CAIRN_OPEN_NO_FLASH, .memory_bytes = 16 * MIB,
	                                .catalog_bytes = MIB};
	cairn *store;
	assert_int_equal(cairn_open(NULL, &options, &store), 0);
	cairn_space *space = space_named(store, NULL, "m");
	int fd = memfd_create("source", MFD_CLOEXEC);
	assert_int_equal(ftruncate(fd, LENGTH), 0);
	uint8_t *source = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	struct flipper flipper = {.bytes = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), .length = LENGTH};
	assert_true(source != MAP_FAILED && flipper.bytes != MAP_FAILED);
	uint8_t *sink = malloc(LENGTH);
	pthread_t thread;
	assert_int_equal(pthread_create(&thread, NULL, flipper_main, &flipper), 0);
	int good = 1;
	uint64_t until = now_ms() + RUN_MS;
	for (uint32_t i = 0; good && (i < 20 || now_ms() < until); i++) {
		cairn_key key = key_at(i + 1, 0);
		struct cairn_buf buf = cairn_buf_of(source, LENGTH);
		struct cairn_item item = {.key = key, .bufs = &buf, .nbufs = 1};
		good = cairn_put(store, space, &item, 1, NULL) == 1;
		uint64_t check = item.ret_check;
		buf = cairn_buf_of(sink, LENGTH);
		good = good && cairn_get(store, space, &item, 1, NULL) == 1;
		good = good && item.ret_check == check && cairn_check(sink, LENGTH) == check;
	}
	__atomic_store_n(&flipper.stop, 1, __ATOMIC_RELAXED);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_true(good);
	assert_int_equal(stat_of(store).tier[CAIRN_TIER_MEMORY].damaged_parts, 0);
	free(sink);
	munmap(source, LENGTH);
	munmap(flipper.bytes, LENGTH);
	close(fd);
	assert_int_equal(cairn_close(store), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_faults_put__stores_what_it_checked_when_source_changes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
