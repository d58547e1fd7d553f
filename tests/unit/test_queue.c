/* SPDX-License-Identifier: Apache-2.0 */
/* src/store/queue.c: batches that complete later. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <poll.h>

#include "unit/store_lib.h"

enum {
	LENGTH = 10000,
	BATCH = 8
};

struct batch {
	struct cairn_item items[BATCH];
	struct cairn_buf bufs[BATCH];
	uint8_t bytes[BATCH][LENGTH];
};

static struct batch *batch_new(uint64_t chain, int fill)
{
	struct batch *batch = calloc(1, sizeof *batch);
	for (uint32_t i = 0; i < BATCH; i++) {
		cairn_key key = key_at(chain, i);
		if (fill)
			pattern_fill(batch->bytes[i], LENGTH, &key, 0, 0);
		batch->bufs[i] = cairn_buf_of(batch->bytes[i], LENGTH);
		batch->items[i] = (struct cairn_item){.key = key, .bufs = &batch->bufs[i], .nbufs = 1};
	}
	return batch;
}

static int batch_right(const struct batch *batch)
{
	for (uint32_t i = 0; i < BATCH; i++)
		if (batch->items[i].status || !pattern_is(batch->bytes[i], LENGTH, &batch->items[i].key, 0, 0))
			return 0;
	return 1;
}

static int readable(cairn_queue *queue)
{
	struct pollfd fd = {.fd = cairn_queue_fd(queue), .events = POLLIN};
	return poll(&fd, 1, 0) == 1;
}

static void test_queue__completes_each_batch_once_when_threaded(void **state)
{
	(void)state;
	enum {
		MANY = 40
	};
	struct place place;
	place_init(&place, 64 * MIB, 16 * MIB);
	place.options.workers = 4;
	cairn *store = place_open(&place);
	cairn_space *space = space_named(store, NULL, "m");
	cairn_queue *queue;
	struct cairn_completion done[MANY];
	struct batch *puts[MANY], *gets[MANY];
	struct cairn_call call = {.size = sizeof call, .durability = CAIRN_DURABLE_FLASH};
	assert_int_equal(cairn_queue_open(store, 0, &queue), CAIRN_E_INVAL);
	assert_int_equal(cairn_queue_open(store, MANY, &queue), 0);
	assert_int_equal(cairn_queue_wait(queue, done, MANY, 0), 0);
	assert_false(readable(queue));
	for (int gets_too = 0; gets_too < 2; gets_too++) {
		uint8_t seen[MANY] = {0};
		for (uint64_t i = 0; i < MANY; i++) {
			struct batch **to = gets_too ? gets : puts;
			to[i] = batch_new(i, !gets_too);
			assert_int_equal(gets_too ? cairn_get_submit(queue, space, to[i]->items, BATCH, NULL, 1000 + i)
			                          : cairn_put_submit(queue, space, to[i]->items, BATCH, &call, 1000 + i),
			                 0);
		}
		for (uint32_t n = 0; n < MANY;) {
			long got = cairn_queue_wait(queue, done, MANY, 10000);
			assert_true(got > 0);
			for (long i = 0; i < got; i++) {
				assert_int_equal(done[i].result, BATCH);
				assert_int_equal(seen[done[i].tag - 1000]++, 0);
			}
			n += (uint32_t)got;
		}
		assert_int_equal(cairn_queue_wait(queue, done, MANY, 1), 0);
		assert_false(readable(queue));
	}
	for (uint32_t i = 0; i < MANY; i++) {
		assert_true(batch_right(gets[i]));
		free(puts[i]);
		free(gets[i]);
	}
	cairn_queue_close(queue);
	assert_int_equal(cairn_close(store), 0);
	place_done(&place);
}

static void test_queue__is_bounded_and_cancels_when_asked(void **state)
{
	(void)state;
	not_over(SERVED_UNIX, "a client's queue has threads, and begins at once");
	not_over(SERVED_TCP, "a client's queue has threads, and begins at once");
	struct world world; /* without threads nothing begins before the wait */
	world_init(&world, 1, 16 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	cairn_queue *queue;
	struct cairn_completion done[8];
	struct batch *batches[4];
	assert_int_equal(cairn_queue_open(store, 3, &queue), 0);
	for (uint64_t i = 0; i < 4; i++)
		batches[i] = batch_new(i, 1);
	for (uint64_t i = 0; i < 3; i++)
		assert_int_equal(cairn_put_submit(queue, space, batches[i]->items, BATCH, NULL, i), 0);
	assert_int_equal(cairn_put_submit(queue, space, batches[3]->items, BATCH, NULL, 1), CAIRN_E_INVAL);
	assert_int_equal(cairn_put_submit(queue, space, batches[3]->items, BATCH, NULL, 3), CAIRN_E_BUSY);
	assert_int_equal(cairn_cancel(queue, 1), 0);
	assert_int_equal(cairn_cancel(queue, 1), CAIRN_E_NOENT);
	assert_int_equal(cairn_cancel(queue, 77), CAIRN_E_NOENT);
	assert_true(readable(queue));
	assert_int_equal(cairn_queue_wait(queue, done, 1, 0), 1);
	assert_int_equal(done[0].tag, 1);
	assert_int_equal(done[0].result, CAIRN_E_CANCELED);
	assert_true(readable(queue));
	for (uint32_t i = 0; i < BATCH; i++)
		assert_int_equal(batches[1]->items[i].status, CAIRN_E_CANCELED);
	assert_int_equal(cairn_queue_wait(queue, done, 8, 0), 2);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(done[i].tag, i * 2);
		assert_int_equal(done[i].result, BATCH);
	}
	assert_false(readable(queue));
	assert_int_equal(match_tokens(store, space, 1, 1), 0);
	/* The deadline counts from submit. */
	struct cairn_call call = {.size = sizeof call, .timeout_ms = 20};
	assert_int_equal(cairn_put_submit(queue, space, batches[3]->items, BATCH, &call, 3), 0);
	sim_advance(world.sim, 30000000);
	assert_int_equal(cairn_queue_wait(queue, done, 8, 0), 1);
	assert_int_equal(done[0].result, CAIRN_E_LATE);
	assert_int_equal(batches[3]->items[0].status, CAIRN_E_LATE);
	assert_int_equal(match_tokens(store, space, 3, 1), 0);
	/* Closing ends what has not begun. */
	assert_int_equal(cairn_put_submit(queue, space, batches[3]->items, BATCH, NULL, 3), 0);
	cairn_queue_close(queue);
	cairn_queue_close(NULL);
	assert_int_equal(batches[3]->items[BATCH - 1].status, CAIRN_E_CANCELED);
	for (uint32_t i = 0; i < 4; i++)
		free(batches[i]);
	verify(store);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_queue__completes_each_batch_once_when_threaded),
		cmocka_unit_test(test_queue__is_bounded_and_cancels_when_asked),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
