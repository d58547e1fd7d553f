/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of policy/share.c and tier/lane.c: who goes next, in bytes. One thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/random.h"
#include "tier/lane.h"

/* Serves `n` requests of flows that always have more; their sizes are drawn up to `most`. */
static void serve(struct share *share, const uint32_t *weights, const uint32_t most[4], uint32_t n, uint64_t got[4])
{
	struct random random;
	random_init(&random, 7);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t flow = share_turn(share, 0);
		assert_true(flow < 4);
		uint64_t bytes = 1 + random_below(&random, most[flow]);
		got[flow] += bytes;
		share_take(share, flow, weights[flow], bytes, 1);
	}
}

static void test_share__bytes_are_by_weight_when_all_wait(void **state)
{
	(void)state;
	static const uint32_t weights[4] = {300, 100, 50, 10000}, most[4] = {65536, 4096, 1 << 20, 65536};
	struct share share = {0};
	uint64_t got[4] = {0}, all = 0;
	for (uint32_t i = 0; i < 4; i++)
		share_come(&share, i);
	serve(&share, weights, most, 200000, got);
	for (int i = 0; i < 4; i++)
		all += got[i];
	for (int i = 0; i < 4; i++) {
		double part = (double)got[i] / (double)all, want = weights[i] / 10450.0;
		assert_true(part > want * 0.97 && part < want * 1.03);
	}
}

static void test_share__a_newcomer_is_next_when_others_wait_long(void **state)
{
	(void)state;
	struct share share = {0};
	share_come(&share, 5);
	for (int i = 0; i < 1000; i++)
		share_take(&share, share_turn(&share, 0), 10000, 1 << 20, 1);
	share_come(&share, 9);
	share_take(&share, 5, 10000, 1 << 20, 1); /* whatever was first of the one that was there */
	assert_int_equal(share_turn(&share, 0), 9);
	/* But what it did not use before is not saved up: one request each from now on. */
	share_take(&share, 9, 10000, 1 << 20, 1);
	uint32_t first = share_turn(&share, 0);
	share_take(&share, first, 10000, 1 << 20, 1);
	assert_int_not_equal(share_turn(&share, 0), first);
}

static void test_share__one_alone_has_all_and_some_may_be_left_out(void **state)
{
	(void)state;
	struct share share = {0};
	assert_int_equal(share_turn(&share, 0), SHARE_NOBODY);
	share_come(&share, 63);
	assert_int_equal(share_turn(&share, 1ull << 63), SHARE_NOBODY);
	for (int i = 0; i < 100; i++) {
		assert_int_equal(share_turn(&share, 0), 63);
		share_take(&share, 63, 1, UINT32_MAX, i < 99);
	}
	assert_int_equal(share_turn(&share, 0), SHARE_NOBODY);
}

static void test_share__a_lane_keeps_each_tenants_order(void **state)
{
	(void)state;
	static struct tier_req reqs[300];
	static uint32_t weights[SHARE_FLOWS] = {100, 300, 0};
	struct lane lane;
	uint64_t last[3] = {0};
	lane_init(&lane, weights);
	assert_true(lane_empty(&lane) && lane_oldest(&lane) == UINT64_MAX && !lane_first(&lane, 0));
	for (uint32_t i = 0; i < 300; i++) {
		reqs[i] = (struct tier_req){.flow = i % 3, .ticket = i + 1, .entry = {.stored_length = 4096 + i}};
		lane_push(&lane, &reqs[i]);
	}
	assert_int_equal(lane_oldest(&lane), 1);
	assert_int_equal(lane_first(&lane, 1)->flow, 1);
	for (uint32_t i = 0; i < 300; i++) {
		struct tier_req *req = lane_drain(&lane);
		assert_non_null(req);
		assert_true(req->ticket > last[req->flow]);
		last[req->flow] = req->ticket;
		if (i == 99) /* three of the heavier one beside one of each other, so far */
			assert_true(last[1] / 3 >= 58 && last[1] / 3 <= 62 && last[0] / 3 >= 18 && last[0] / 3 <= 22);
	}
	assert_true(lane_empty(&lane) && !lane_drain(&lane));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_share__bytes_are_by_weight_when_all_wait),
		cmocka_unit_test(test_share__a_newcomer_is_next_when_others_wait_long),
		cmocka_unit_test(test_share__one_alone_has_all_and_some_may_be_left_out),
		cmocka_unit_test(test_share__a_lane_keeps_each_tenants_order),
	};
	return cmocka_run_group_tests_name("share", tests, NULL, NULL);
}
