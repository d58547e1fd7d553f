/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every N-th allocation fails, in turn, over the life of a store, until one passes untouched: nothing crashes, leaks
 * (under ASan) or hangs, and what was acknowledged is there afterwards. The same for every N-th I/O.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "unit/store_lib.h"

enum {
	BLOCKS = 6,
	LENGTH = 30000
};

struct told {
	uint8_t block[BLOCKS]; /* 1: durable; 2: dropped */
	uint8_t session;
	uint8_t failed; /* some call said no */
};

/* The same calls each time. Whatever says 0 is held to it. */
static void life_lead(cairn *store, struct told *told)
{
	struct cairn_space_desc desc = lib_desc("acme", "m");
	cairn_space *space;
	cairn_key keys[BLOCKS];
	if (cairn_describe(store, &desc, &space)) {
		told->failed = 1;
		return;
	}
	for (uint32_t i = 0; i < BLOCKS; i++) {
		keys[i] = key_at(1, i);
		int status = put_status(store, space, &keys[i], i ? &keys[i - 1] : NULL, LENGTH, CAIRN_DURABLE_FLASH);
		told->block[i] = told->block[i] != 2 && (status == CAIRN_OK || status == CAIRN_EXISTED);
		told->failed |= status < 0;
	}
	struct cairn_chain chain = {0, keys, BLOCKS - 1};
	cairn_match *match = NULL;
	if (cairn_match_take(store, space, &chain, 1, 0, 0, &match))
		told->failed = 1;
	cairn_match_release(store, match);
	uint8_t bytes[100];
	cairn_key key = key_at(2, 0);
	pattern_fill(bytes, sizeof bytes, &key, 0, 0);
	struct cairn_buf buf = cairn_buf_of(bytes, sizeof bytes);
	struct cairn_item tail = {.key = key, .bufs = &buf, .nbufs = 1};
	struct cairn_save save = {.size = sizeof save,
	                          .name = {"acme", "ann", "chat"},
	                          .chains = &chain,
	                          .nchains = 1,
	                          .tails = &tail,
	                          .ntails = 1,
	                          .ttl_s = 100000,
	                          .state = "x",
	                          .state_bytes = 1};
	int saved = cairn_session_save(store, space, &save);
	told->session |= saved == 0;
	told->failed |= saved != 0;
	cairn_session *session = NULL;
	if (cairn_session_resume(store, &save.name, &session))
		told->failed = 1;
	cairn_session_free(session);
	struct cairn_item item = {.key = keys[0]};
	cairn_lease *lease = NULL;
	if (cairn_lease_take(store, space, &item, NULL, &lease))
		told->failed = 1;
	cairn_lease_release(store, lease);
	cairn_queue *queue = NULL;
	if (cairn_queue_open(store, 4, &queue))
		told->failed = 1;
	cairn_queue_close(queue);
	told->block[BLOCKS - 1] = 0;
	if (cairn_drop(store, space, &keys[BLOCKS - 1], 1) >= 0)
		told->block[BLOCKS - 1] = 2;
	else
		told->failed = 1;
	struct cairn_stat stat = {.size = sizeof stat};
	told->failed |= cairn_stat(store, &stat) != 0;
}

static void told_check(struct world *world, const struct told *told, uint64_t n)
{
	cairn *store = world_open(world);
	cairn_space *space = space_named(store, "acme", "m");
	for (uint32_t i = 0; i < BLOCKS; i++) {
		cairn_key key = key_at(1, i);
		int status = get_status(store, space, &key, LENGTH);
		if ((told->block[i] == 1 && status) || (told->block[i] == 2 && status != CAIRN_MISS))
			fail_msg("n %llu: block %u: %d", (unsigned long long)n, i, status);
	}
	struct cairn_session_name name = {"acme", "ann", "chat"};
	cairn_session *session;
	if (told->session) {
		assert_int_equal(cairn_session_resume(store, &name, &session), 0);
		cairn_session_free(session);
	}
	verify(store);
	store_abandon(store);
}

static void lives_lead(int allocations, int all, int old)
{
	uint64_t n = 0;
	uint32_t hit = 0;
	int untouched = 0;
	for (; !untouched; n += 1 + n / 12) {
		struct world world;
		struct told told = {.failed = 0};
		cairn *store = NULL;
		world_init(&world, 5, 16 * MIB, 8 * MIB);
		if (old) { /* a store that has been used before */
			store = world_open(&world);
			life_lead(store, &told);
			assert_int_equal(told.failed, 0);
			store = (assert_int_equal(cairn_close(store), 0), NULL);
		}
		uint64_t failed = sim_stats(world.sim)->failed;
		if (allocations)
			mem_fail_at(n + 1, all);
		else
			sim_fail_at(world.sim, n + 1, all);
		int error = world_try(&world, &store);
		if (!error) {
			life_lead(store, &told);
			if (n % 2)
				error = cairn_close(store);
			else
				store_abandon(store);
		}
		untouched = allocations ? !mem_failed() : sim_stats(world.sim)->failed == failed;
		mem_fail_at(0, 0);
		sim_fail_at(world.sim, 0, 0);
		hit += !untouched;
		if (untouched) {
			assert_int_equal(error, 0);
			assert_int_equal(told.failed, 0);
		}
		told_check(&world, &told, n);
		world_done(&world);
		assert_true(n < 20000);
	}
	assert_true(hit > 20);
}

static void test_store_nomem__survives_when_one_allocation_fails(void **state)
{
	(void)state;
	lives_lead(1, 0, 0);
	lives_lead(1, 0, 1);
}

static void test_store_nomem__survives_when_all_allocations_fail(void **state)
{
	(void)state;
	lives_lead(1, 1, 1);
}

static void test_store_nomem__survives_when_one_io_fails(void **state)
{
	(void)state;
	lives_lead(0, 0, 1);
}

static void test_store_nomem__survives_when_all_io_fails(void **state)
{
	(void)state;
	lives_lead(0, 1, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_store_nomem__survives_when_one_allocation_fails),
		cmocka_unit_test(test_store_nomem__survives_when_all_allocations_fail),
		cmocka_unit_test(test_store_nomem__survives_when_one_io_fails),
		cmocka_unit_test(test_store_nomem__survives_when_all_io_fails),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
