/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of what tenants get of a device, and of a device that is ill, on a simulated disk. One thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tier/flash_in.h"
#include "unit/store_lib.h"

#define PART 65536u
#define LATENCY 5000000ull /* most of one read of the simulated disk */

/* Chains of both tenants in flash alone. */
struct fair {
	struct world world;
	cairn *store;
	cairn_space *space[2];
};

static void fair_init(struct fair *fair, const struct cairn_tenant_limits *limits, uint32_t n, uint32_t blocks)
{
	world_init(&fair->world, 11, 128 * MIB, 64 * MIB);
	fair->world.options.tenants = limits;
	fair->world.options.ntenants = n;
	fair->store = world_open(&fair->world);
	for (uint32_t t = 0; t < 2; t++) {
		fair->space[t] = space_named(fair->store, t ? "b" : "a", "m");
		for (uint32_t i = 0; i < blocks; i += 32)
			assert_int_equal(put_chain(fair->store, fair->space[t], 1, i, 32, PART, CAIRN_DURABLE_FLASH), 32);
	}
	fair->store = world_reopen(&fair->world, fair->store);
	for (uint32_t t = 0; t < 2; t++)
		fair->space[t] = space_named(fair->store, t ? "b" : "a", "m");
	struct sim_faults slow = {.delay_ns_max = LATENCY};
	sim_set_faults(fair->world.sim, NULL, &slow);
}

static void fair_done(struct fair *fair)
{
	struct sim_faults none = {0};
	sim_set_faults(fair->world.sim, NULL, &none);
	world_run(&fair->world, fair->store, 1000);
	verify(fair->store);
	assert_int_equal(cairn_close(fair->store), 0);
	world_done(&fair->world);
}

/* Asks for blocks [from, from + n) of a tenant, without waiting. */
static void ask(struct fair *fair, uint32_t tenant, uint32_t from, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct cairn_item item = {.key = key_at(1, from + i)};
		struct store_call call = {.deadline_ns = UINT64_MAX};
		store_begin(fair->store, fair->space[tenant], &item, 1, &call);
	}
}

static uint32_t ready(struct fair *fair, uint32_t tenant, uint32_t n)
{
	uint32_t found = 0;
	cairn *store = fair->store;
	pthread_mutex_lock(&store->lock);
	for (uint32_t i = 0; i < n; i++) {
		cairn_key key = key_at(1, i);
		uint32_t entry = catalog_find(store->catalog, fair->space[tenant]->number, key.bytes, 0);
		uint32_t slot = entry ? catalog_at(store->catalog, entry)->slot : 0;
		found += slot && memory_slot(store->memory, slot)->state == MEMORY_READY;
	}
	pthread_mutex_unlock(&store->lock);
	return found;
}

static void test_fair__reads_are_shared_by_weight_when_both_wait(void **state)
{
	(void)state;
	struct cairn_tenant_limits limits[2] = {{.tenant = "a", .share = 300}, {.tenant = "b", .share = 100}};
	struct fair fair;
	fair_init(&fair, limits, 2, 512);
	uint32_t asked[2] = {0}, got[2] = {0};
	while (got[0] < 360) { /* both always have some that wait beside the 64 in flight; the lighter one comes first */
		for (uint32_t t = 2; t-- > 0;)
			for (; asked[t] < 512 && asked[t] - got[t] < 150; asked[t]++)
				ask(&fair, t, asked[t], 1);
		world_run(&fair.world, fair.store, 1);
		got[0] = ready(&fair, 0, 512);
		got[1] = ready(&fair, 1, 512);
	}
	double ratio = (double)got[0] / got[1];
	if (ratio < 2.7 || ratio > 3.3)
		fail_msg("%u to %u: %.2f", got[0], got[1], ratio);
	fair_done(&fair);
}

/* How long one block of b takes, while a has so many waiting. */
static uint64_t latency_beside(uint32_t backlog)
{
	struct fair fair;
	fair_init(&fair, NULL, 0, 512);
	ask(&fair, 0, 0, backlog);
	world_run(&fair.world, fair.store, 1);
	uint64_t worst = 0;
	for (uint32_t i = 0; i < 8; i++) {
		uint64_t start = clock_mono_ns(fair.store->clock);
		cairn_key key = key_at(1, i);
		assert_int_equal(get_status(fair.store, fair.space[1], &key, PART), CAIRN_OK);
		uint64_t took = clock_mono_ns(fair.store->clock) - start;
		worst = took > worst ? took : worst;
	}
	assert_true(backlog < 128 || ready(&fair, 0, 512) < backlog);
	fair_done(&fair);
	return worst;
}

static void test_fair__a_small_tenant_does_not_wait_for_a_large_ones_backlog(void **state)
{
	(void)state;
	uint64_t some = latency_beside(100), many = latency_beside(400);
	assert_true(some <= 3 * LATENCY && many <= 3 * LATENCY);
}

static void test_fair__one_alone_has_the_whole_device(void **state)
{
	(void)state;
	struct cairn_tenant_limits limits[2] = {{.tenant = "a", .share = 10000}, {.tenant = "b", .share = 1}};
	uint64_t took[2];
	for (uint32_t t = 0; t < 2; t++) {
		struct fair fair;
		fair_init(&fair, limits, 2, 256);
		uint64_t start = clock_mono_ns(fair.store->clock);
		ask(&fair, t, 0, 200);
		while (ready(&fair, t, 200) < 200)
			world_run(&fair.world, fair.store, 1);
		took[t] = clock_mono_ns(fair.store->clock) - start;
		fair_done(&fair);
	}
	assert_true(took[1] <= took[0] * 5 / 4 && took[0] <= took[1] * 5 / 4);
}

/* What nobody waits for: at most half of the device, and none before what somebody does wait for. */
static void test_fair__urgent_reads_go_before_background_ones(void **state)
{
	(void)state;
	struct fair fair;
	fair_init(&fair, NULL, 0, 512);
	cairn_key keys[256];
	for (uint32_t i = 0; i < 256; i++)
		keys[i] = key_at(1, i);
	struct cairn_chain chain = {0, keys, 256};
	assert_int_equal(cairn_hint(fair.store, fair.space[0], &chain, CAIRN_HINT_RESUME), 0);
	world_run(&fair.world, fair.store, 1);
	uint64_t start = clock_mono_ns(fair.store->clock);
	for (uint32_t i = 300; i < 308; i++) {
		cairn_key key = key_at(1, i);
		assert_int_equal(get_status(fair.store, fair.space[0], &key, PART), CAIRN_OK);
	}
	assert_true(clock_mono_ns(fair.store->clock) - start <= 8 * 2 * LATENCY);
	assert_true(ready(&fair, 0, 256) < 256);
	fair_done(&fair);
}

/* A flood of reads that do not end, by one tenant: it has four fifths of the queue, and the other is served. */
static void test_fair__a_flood_leaves_room_in_the_queue(void **state)
{
	(void)state;
	struct fair fair;
	fair_init(&fair, NULL, 0, 640);
	ask(&fair, 0, 0, 640);
	assert_int_equal(fair.store->tenants[0].reqs, 512);
	assert_int_equal(fair.store->reqs_used, 512);
	ask(&fair, 1, 0, 640);
	uint32_t second = fair.store->tenants[1].reqs;
	assert_true(second >= 100 && fair.store->reqs_used < STORE_REQS);
	world_run(&fair.world, fair.store, 2000);
	assert_int_equal(fair.store->reqs_used, 0);
	assert_int_equal(fair.store->tenants[0].reqs + fair.store->tenants[1].reqs, 0);
	assert_int_equal(ready(&fair, 0, 640), 512);
	fair_done(&fair);
}

/* ---- an ill device ----------------------------------------------------------------------------------------------- */

static uint64_t timed_get(struct fair *fair, uint32_t block, int *ret_status)
{
	uint64_t start = clock_mono_ns(fair->store->clock);
	cairn_key key = key_at(1, block);
	*ret_status = get_status(fair->store, fair->space[0], &key, PART);
	return (clock_mono_ns(fair->store->clock) - start) / 1000000;
}

static void test_fair__a_device_that_fails_is_stepped_over_and_comes_back(void **state)
{
	(void)state;
	struct fair fair;
	int status;
	fair_init(&fair, NULL, 0, 64);
	struct sim_faults faults = {.read_error_ppm = 1000000};
	sim_set_faults(fair.world.sim, NULL, &faults);
	for (uint32_t i = 0; i < 3; i++) {
		timed_get(&fair, i, &status);
		assert_int_equal(status, CAIRN_E_IO);
	}
	struct cairn_stat stat = stat_of(fair.store);
	assert_int_equal(stat.device[0].reads_shut, BREAKER_OPEN);
	assert_int_equal(stat.device[0].reads_shut_times, 1);
	/* At once now, without a word to the device; and nothing of it is offered. */
	uint64_t reads = sim_stats(fair.world.sim)->reads;
	for (uint32_t i = 0; i < 10; i++) {
		assert_int_equal(timed_get(&fair, i, &status), 0);
		assert_int_equal(status, CAIRN_E_IO);
	}
	assert_non_null(strstr(cairn_error_text(), "s/flash.cairn is stepped over"));
	assert_int_equal(sim_stats(fair.world.sim)->reads, reads);
	assert_int_equal(match_tokens(fair.store, fair.space[0], 1, 64), 0);
	cairn_key first = key_at(1, 0);
	assert_int_equal(why(fair.store, fair.space[0], &first), CAIRN_WHY_PRESENT); /* nothing is lost */
	/* A probe that fails keeps it so, for twice as long. */
	world_run(&fair.world, fair.store, 1100);
	timed_get(&fair, 0, &status);
	assert_int_equal(status, CAIRN_E_IO);
	world_run(&fair.world, fair.store, 1100);
	assert_int_equal(timed_get(&fair, 0, &status), 0);
	assert_int_equal(stat_of(fair.store).device[0].reads_shut_times, 2);
	/* It is well again. */
	faults.read_error_ppm = 0;
	sim_set_faults(fair.world.sim, NULL, &faults);
	world_run(&fair.world, fair.store, 1100);
	for (uint32_t i = 0; i < 64; i++) {
		timed_get(&fair, i, &status);
		assert_int_equal(status, CAIRN_OK);
	}
	assert_int_equal(stat_of(fair.store).device[0].reads_shut, BREAKER_CLOSED);
	assert_int_equal(match_tokens(fair.store, fair.space[0], 1, 64), 64 * 16);
	fair_done(&fair);
}

/* Reads that never end: those who wait for them, without a deadline, are told; later ones at once. Memory is served. */
static void test_fair__a_device_that_hangs_holds_nobody(void **state)
{
	(void)state;
	struct fair fair;
	int status;
	fair_init(&fair, NULL, 0, 64);
	timed_get(&fair, 60, &status);
	assert_int_equal(status, CAIRN_OK);
	struct sim_faults faults = {.slow_ppm = 1000000, .slow_ns_max = 100000000000000ull};
	sim_set_faults(fair.world.sim, NULL, &faults);
	ask(&fair, 0, 0, 3);
	uint64_t took = timed_get(&fair, 3, &status);
	assert_int_equal(status, CAIRN_E_IO);
	assert_true(took >= 4000 && took < 6500);
	for (uint32_t i = 0; i < 60; i++) { /* those under way, too */
		assert_int_equal(timed_get(&fair, i, &status), 0);
		assert_int_equal(status, CAIRN_E_IO);
	}
	timed_get(&fair, 60, &status);
	assert_int_equal(status, CAIRN_OK);
	assert_int_equal(match_tokens(fair.store, fair.space[0], 1, 64), 0);
	/* A probe that hangs is given up, too, and soon. */
	world_run(&fair.world, fair.store, 1100);
	took = timed_get(&fair, 10, &status);
	assert_int_equal(status, CAIRN_E_IO);
	assert_true(took < 2500);
	faults.slow_ppm = 0;
	sim_set_faults(fair.world.sim, NULL, &faults);
	world_run(&fair.world, fair.store, 2100);
	for (uint32_t i = 20; i < 60; i++) {
		timed_get(&fair, i, &status);
		assert_int_equal(status, CAIRN_OK);
	}
	assert_int_equal(stat_of(fair.store).device[0].reads_shut, BREAKER_CLOSED);
	store_abandon(fair.store); /* what hangs would hang the close for its half a minute */
	world_done(&fair.world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fair__reads_are_shared_by_weight_when_both_wait),
		cmocka_unit_test(test_fair__a_small_tenant_does_not_wait_for_a_large_ones_backlog),
		cmocka_unit_test(test_fair__one_alone_has_the_whole_device),
		cmocka_unit_test(test_fair__urgent_reads_go_before_background_ones),
		cmocka_unit_test(test_fair__a_flood_leaves_room_in_the_queue),
		cmocka_unit_test(test_fair__a_device_that_fails_is_stepped_over_and_comes_back),
		cmocka_unit_test(test_fair__a_device_that_hangs_holds_nobody),
	};
	return cmocka_run_group_tests_name("fair", tests, NULL, NULL);
}
