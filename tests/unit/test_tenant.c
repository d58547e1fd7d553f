/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of store/tenant.c: quotas, reserves, what is counted, on a simulated disk. One thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/store_lib.h"

#define PART 65536u

struct tenants {
	uint32_t n;
	char names[8][64];
	struct cairn_tenant_stat of[8];
};

static int tenant_take(void *arg, const struct cairn_tenant_stat *stat)
{
	struct tenants *all = arg;
	assert_true(all->n < 8);
	snprintf(all->names[all->n], sizeof all->names[0], "%s", stat->tenant);
	all->of[all->n++] = *stat;
	return 0;
}

static struct cairn_tenant_stat tenant_stat(cairn *store, const char *name)
{
	struct tenants all = {0};
	long n = cairn_list_tenants(store, tenant_take, &all);
	assert_int_equal(n, all.n);
	for (uint32_t i = 0; i < all.n; i++)
		if (!strcmp(all.names[i], name))
			return all.of[i];
	fail_msg("no tenant %s", name);
	return all.of[0];
}

static cairn *open_limited(struct world *world, const struct cairn_tenant_limits *limits, uint32_t n)
{
	world->options.tenants = limits;
	world->options.ntenants = n;
	return world_open(world);
}

/* How many blocks of a chain are in a tier. */
static uint32_t count_in(cairn *store, const cairn_space *space, uint64_t chain, uint32_t n, int flash)
{
	uint32_t found = 0;
	pthread_mutex_lock(&store->lock);
	for (uint32_t i = 0; i < n; i++) {
		cairn_key key = key_at(chain, i);
		uint32_t entry = catalog_find(store->catalog, space->number, key.bytes, 0);
		const struct catalog_entry *e = entry ? catalog_at(store->catalog, entry) : NULL;
		found += e && !(e->flags & CATALOG_GHOST) && (flash ? (e->flags & CATALOG_FLASH) != 0 : e->slot != 0);
	}
	pthread_mutex_unlock(&store->lock);
	return found;
}

/* Chains of 8 blocks each. */
static void flood(cairn *store, const cairn_space *space, uint64_t first, uint32_t chains, uint32_t durability)
{
	for (uint32_t i = 0; i < chains; i++)
		(void)put_chain(store, space, first + i, 0, 8, PART, durability);
}

static void test_tenant__others_keep_their_memory_when_one_is_over_its_quota(void **state)
{
	(void)state;
	struct world world;
	struct cairn_tenant_limits limits = {.tenant = "a", .memory_quota_bytes = 3 * MIB};
	world_init(&world, 1, 64 * MIB, 16 * MIB);
	world.options.flags |= CAIRN_OPEN_NO_FLASH;
	cairn *store = open_limited(&world, &limits, 1);
	cairn_space *a = space_named(store, "a", "m"), *b = space_named(store, "b", "m");
	put_chain(store, b, 1, 0, 32, PART, 0);
	for (uint32_t i = 0; i < 40; i++) {
		assert_int_equal(put_chain(store, a, 100 + i, 0, 8, PART, 0), 8);
		assert_true(tenant_stat(store, "a").memory_bytes <= 3 * MIB);
	}
	assert_int_equal(count_in(store, b, 1, 32, 0), 32);
	struct cairn_tenant_stat of_a = tenant_stat(store, "a"), of_b = tenant_stat(store, "b");
	assert_int_equal(of_a.memory_bytes, 3 * MIB);
	assert_int_equal(of_a.evicted_parts[CAIRN_TIER_MEMORY], 40 * 8 - 48);
	assert_int_equal(of_b.evicted_parts[CAIRN_TIER_MEMORY], 0);
	assert_int_equal(of_b.memory_bytes, 32 * PART);
	assert_int_equal(of_a.memory_quota_bytes, 3 * MIB);
	assert_int_equal(of_a.written_parts, 320);
	verify(store);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

/* Nothing of its own may go: that is said, at once or when its time is up, and nobody else's goes instead. */
static void test_tenant__quota_is_said_when_nothing_of_its_own_may_go(void **state)
{
	(void)state;
	struct cairn_tenant_limits limits = {.tenant = "a", .memory_quota_bytes = 2 * MIB};
	struct cairn_options options = {.size = sizeof options, .flags = CAIRN_OPEN_NO_FLASH, .memory_bytes = 16 * MIB,
	                                .catalog_bytes = MIB, .tenants = &limits, .ntenants = 1};
	cairn *store; /* on a real clock: nothing moves a simulated one */
	assert_int_equal(cairn_open(NULL, &options, &store), 0);
	cairn_space *a = space_named(store, "a", "m"), *b = space_named(store, "b", "m");
	put_chain(store, b, 1, 0, 176, PART, 0);
	assert_int_equal(put_chain(store, a, 2, 0, 32, PART, 0), 32);
	/* Held by a match, half of them by leases too: none may go. */
	cairn_key keys[32];
	cairn_lease *leases[16];
	cairn_match *match;
	for (uint32_t i = 0; i < 32; i++)
		keys[i] = key_at(2, i);
	struct cairn_chain chain = {0, keys, 32};
	assert_int_equal(cairn_match_take(store, a, &chain, 1, 0, 0, &match), 0);
	for (uint32_t i = 0; i < 16; i++) {
		struct cairn_item item = {.key = keys[i]};
		assert_int_equal(cairn_lease_take(store, a, &item, NULL, &leases[i]), 0);
	}
	struct cairn_item more = {.key = keys[16]};
	cairn_lease *refused;
	assert_int_equal(cairn_lease_take(store, a, &more, NULL, &refused), CAIRN_E_BUSY);
	assert_non_null(strstr(cairn_error_text(), "half of the tenant's memory"));
	struct put_one put = {.key = key_at(3, 0), .length = MIB + 1, .timeout_ms = 50};
	assert_int_equal(put_item(store, a, &put).status, CAIRN_E_QUOTA);
	assert_non_null(strstr(cairn_error_text(), "memory quota of 2097152"));
	assert_int_equal(tenant_stat(store, "a").quota_refused, 1);
	/* Larger than the quota: nobody waits for that. */
	uint64_t before = clock_mono_ns(store->clock);
	put = (struct put_one){.key = key_at(3, 1), .length = 3 * MIB};
	assert_int_equal(put_item(store, a, &put).status, CAIRN_E_QUOTA);
	assert_true(clock_mono_ns(store->clock) - before < 1000000000);
	assert_int_equal(count_in(store, b, 1, 176, 0), 176);
	for (uint32_t i = 0; i < 16; i++)
		cairn_lease_release(store, leases[i]);
	cairn_match_release(store, match);
	put = (struct put_one){.key = key_at(3, 0), .length = MIB + 1};
	assert_int_equal(put_item(store, a, &put).status, 0);
	verify(store);
	assert_int_equal(cairn_close(store), 0);
}

/* FIELD-BUGS 38: one tenant puts ten times what there is, the other keeps a tenth of it. */
static void test_tenant__a_reserve_survives_when_another_floods(void **state)
{
	(void)state;
	struct world world;
	struct cairn_tenant_limits limits = {
	    .tenant = "b", .memory_reserved_bytes = 3 * MIB, .flash_reserved_bytes = 8 * MIB};
	world_init(&world, 3, 64 * MIB, 16 * MIB);
	cairn *store = open_limited(&world, &limits, 1);
	cairn_space *a = space_named(store, "a", "m"), *b = space_named(store, "b", "m");
	/* a comes first and has all of it. */
	flood(store, a, 1000, 150, CAIRN_DURABLE_FLASH);
	assert_int_equal(put_chain(store, b, 1, 0, 48, PART, CAIRN_DURABLE_FLASH), 48);
	for (uint32_t i = 0; i < 1300; i += 50) {
		flood(store, a, 2000 + i, 50, CAIRN_DURABLE_FLASH);
		assert_int_equal(count_in(store, b, 1, 48, 0), 48);
		assert_int_equal(count_in(store, b, 1, 48, 1), 48);
	}
	struct cairn_tenant_stat of_a = tenant_stat(store, "a"), of_b = tenant_stat(store, "b");
	assert_int_equal(of_b.flash_parts, 48);
	assert_int_equal(of_b.flash_live_bytes, 48 * PART);
	assert_true(of_b.flash_bytes >= 48 * PART && of_b.flash_bytes <= 8 * MIB);
	assert_true(of_a.flash_bytes > 40 * MIB);
	assert_true(of_a.written_bytes > 640 * MIB);
	verify(store);
	/* And it is known after a restart whose the segments are. */
	store = world_reopen(&world, store);
	b = space_named(store, "b", "m");
	assert_int_equal(tenant_stat(store, "b").flash_bytes, of_b.flash_bytes);
	assert_int_equal(count_in(store, b, 1, 48, 1), 48);
	a = space_named(store, "a", "m");
	flood(store, a, 9000, 200, CAIRN_DURABLE_FLASH);
	assert_int_equal(count_in(store, b, 1, 48, 1), 48);
	verify(store);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

static void test_tenant__flash_quota_holds_when_a_tenant_floods(void **state)
{
	(void)state;
	struct world world;
	struct cairn_tenant_limits limits = {.tenant = "a", .flash_quota_bytes = 10 * MIB};
	world_init(&world, 4, 64 * MIB, 16 * MIB);
	cairn *store = open_limited(&world, &limits, 1);
	cairn_space *a = space_named(store, "a", "m"), *b = space_named(store, "b", "m");
	assert_int_equal(put_chain(store, b, 1, 0, 32, PART, CAIRN_DURABLE_FLASH), 32);
	for (uint32_t i = 0; i < 100; i++) {
		flood(store, a, 100 + i, 1, CAIRN_DURABLE_FLASH);
		assert_true(tenant_stat(store, "a").flash_bytes <= 10 * MIB);
	}
	assert_true(tenant_stat(store, "a").flash_live_bytes > 6 * MIB);
	assert_int_equal(count_in(store, a, 199, 8, 1), 8);
	assert_int_equal(count_in(store, b, 1, 32, 1), 32);
	struct cairn_stat stat = stat_of(store);
	assert_true(stat.device[0].free_segments > 40); /* there is room: the quota is why */
	assert_int_equal(tenant_stat(store, "a").quota_refused, 0);
	verify(store);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

/* What is saved for good fills the quota: more is refused with its name, and the other tenant writes on. */
static void test_tenant__flash_quota_is_said_when_all_of_it_is_pinned(void **state)
{
	(void)state;
	struct world world;
	struct cairn_tenant_limits limits = {.tenant = "a", .flash_quota_bytes = 6 * MIB};
	world_init(&world, 5, 64 * MIB, 16 * MIB);
	cairn *store = open_limited(&world, &limits, 1);
	cairn_space *a = space_named(store, "a", "m"), *b = space_named(store, "b", "m");
	int saved = 0, error = 0;
	for (uint32_t i = 0; i < 20 && !error; i++) {
		char name[16];
		cairn_key keys[8];
		for (uint32_t k = 0; k < 8; k++)
			keys[k] = key_at(100 + i, k);
		struct cairn_chain chain = {0, keys, 8};
		snprintf(name, sizeof name, "s%u", i);
		struct cairn_save save = {
		    .size = sizeof save, .name = {.tenant = "a", .name = name}, .chains = &chain, .nchains = 1, .pin = 1};
		(void)put_chain(store, a, 100 + i, 0, 8, PART, 0);
		error = cairn_session_save(store, a, &save);
		saved += !error;
	}
	assert_int_equal(error, CAIRN_E_QUOTA);
	assert_non_null(strstr(cairn_error_text(), "flash quota of 6291456"));
	assert_true(saved >= 6 && saved <= 11);
	assert_true(tenant_stat(store, "a").flash_bytes <= 6 * MIB);
	assert_true(tenant_stat(store, "a").quota_refused > 0);
	assert_int_equal(put_chain(store, b, 1, 0, 32, PART, CAIRN_DURABLE_FLASH), 32);
	assert_int_equal(cairn_sync(store), 0);
	verify(store);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

static void test_tenant__a_new_quota_holds_when_it_is_given_at_run_time(void **state)
{
	(void)state;
	struct world world;
	struct cairn_tenant_limits limits[2] = {{.memory_quota_bytes = 2 * MIB, .flash_quota_bytes = 8 * MIB},
	                                        {.tenant = "b", .share = 300}};
	world_init(&world, 6, 64 * MIB, 16 * MIB);
	cairn *store = open_limited(&world, NULL, 0);
	cairn_space *a = space_named(store, "a", "m"), *b = space_named(store, "b", "m");
	flood(store, a, 100, 40, CAIRN_DURABLE_FLASH);
	put_chain(store, b, 1, 0, 40, PART, CAIRN_DURABLE_FLASH);
	assert_true(tenant_stat(store, "a").memory_bytes > 2 * MIB);
	assert_int_equal(tenant_stat(store, "a").share, 100);
	assert_int_equal(cairn_limits(store, limits, 2), 0);
	assert_true(tenant_stat(store, "a").memory_bytes <= 2 * MIB);
	assert_int_equal(tenant_stat(store, "b").memory_bytes, 40 * PART); /* named: the rest is not for it */
	assert_int_equal(tenant_stat(store, "b").share, 300);
	flood(store, a, 200, 40, CAIRN_DURABLE_FLASH);
	assert_true(tenant_stat(store, "a").flash_bytes <= 8 * MIB);
	assert_int_equal(count_in(store, b, 1, 40, 1), 40);
	assert_int_equal(cairn_limits(store, NULL, 0), 0);
	assert_int_equal(tenant_stat(store, "a").memory_quota_bytes, 0);
	verify(store);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

static void test_tenant__limits_are_refused_when_they_cannot_hold(void **state)
{
	(void)state;
	static const struct {
		struct cairn_tenant_limits limits[2];
		uint32_t n;
		const char *says;
	} table[] = {
		{{{.tenant = "a"}, {.tenant = "a"}}, 2, "limits of a are given twice"},
		{{{.tenant = NULL}, {.tenant = NULL}}, 2, "limits of all others are given twice"},
		{{{.tenant = "a", .memory_quota_bytes = 1, .memory_reserved_bytes = 2}}, 1, "more is reserved than its quota"},
		{{{.tenant = "a", .flash_quota_bytes = 1, .flash_reserved_bytes = 2}}, 1, "more is reserved than its quota"},
		{{{.tenant = "a", .share = 10001}}, 1, "at most 10000"},
		{{{.memory_reserved_bytes = 1}}, 1, "by name"},
		{{{.tenant = ""}}, 1, "1 to 255"},
		{{{.tenant = "a", .memory_reserved_bytes = 9 * MIB}, {.tenant = "b", .memory_reserved_bytes = 8 * MIB}},
	     2, "in whole extents of 4194304"},
		{{{.tenant = "a", .memory_reserved_bytes = UINT64_MAX}}, 1, "more memory is reserved"},
		{{{.tenant = "a", .flash_reserved_bytes = 40 * MIB}, {.tenant = "b", .flash_reserved_bytes = 20 * MIB}},
	     2, "at most 7/8"},
		{{{.tenant = "a", .flash_reserved_bytes = UINT64_MAX}, {.tenant = "b", .flash_reserved_bytes = UINT64_MAX}},
	     2, "at most 7/8"},
	};
	struct world world;
	world_init(&world, 7, 64 * MIB, 16 * MIB);
	cairn *store = open_limited(&world, NULL, 0), *other = NULL;
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		assert_int_equal(cairn_limits(store, table[i].limits, table[i].n), CAIRN_E_INVAL);
		if (!strstr(cairn_error_text(), table[i].says))
			fail_msg("\"%s\" does not say %s", cairn_error_text(), table[i].says);
	}
	assert_int_equal(cairn_close(store), 0);
	world.options.tenants = table[0].limits;
	world.options.ntenants = 2;
	assert_int_equal(world_try(&world, &other), CAIRN_E_INVAL);
	world_done(&world);
}

/* FIELD-BUGS 36: the same keys, the same description but for the tenant. */
static void test_tenant__misses_when_the_key_is_anothers(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 8, 64 * MIB, 16 * MIB);
	cairn *store = open_limited(&world, NULL, 0);
	cairn_space *a = space_named(store, "a", "m"), *b = space_named(store, "b", "m");
	assert_int_equal(put_chain(store, a, 1, 0, 8, PART, CAIRN_DURABLE_FLASH), 8);
	for (int round = 0; round < 2; round++) { /* in memory, then in flash alone */
		for (uint32_t i = 0; i < 8; i++) {
			cairn_key key = key_at(1, i);
			cairn_lease *lease = NULL;
			struct cairn_item item = {.key = key};
			assert_int_equal(get_status(store, b, &key, PART), CAIRN_MISS);
			assert_int_equal(cairn_lease_take(store, b, &item, NULL, &lease), CAIRN_MISS);
			assert_int_equal(item.ret_bytes, 0);
			assert_int_equal(why(store, b, &key), CAIRN_WHY_NONE); /* as of one that nobody ever put */
			assert_int_equal(why(store, a, &key), CAIRN_WHY_PRESENT);
		}
		assert_int_equal(match_tokens(store, b, 1, 8), 0);
		struct cairn_chain chain = {0};
		cairn_key keys[8];
		for (uint32_t i = 0; i < 8; i++)
			keys[i] = key_at(1, i);
		chain.keys = keys;
		chain.nkeys = 8;
		assert_int_equal(cairn_hint(store, b, &chain, CAIRN_HINT_CLOSE), 0);
		assert_int_equal(cairn_hint(store, b, &chain, CAIRN_HINT_RESUME), 0);
		assert_int_equal(cairn_drop(store, b, keys, 8), 0); /* takes nothing that is another's */
		assert_int_equal(match_tokens(store, a, 1, 8), 8 * 16);
		assert_int_equal(tenant_stat(store, "b").misses, 16);
		store = world_reopen(&world, store);
		a = space_named(store, "a", "m");
		b = space_named(store, "b", "m");
	}
	/* One's put under the key is no put of the other's, and drops of a tenant are its own alone. */
	put_good(store, b, &(cairn_key){.bytes = {1}}, NULL, PART, 0);
	assert_int_equal(get_status(store, a, &(cairn_key){.bytes = {1}}, PART), CAIRN_MISS);
	assert_int_equal(cairn_drop_tenant(store, "b"), 1);
	assert_int_equal(match_tokens(store, a, 1, 8), 8 * 16);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tenant__others_keep_their_memory_when_one_is_over_its_quota),
		cmocka_unit_test(test_tenant__quota_is_said_when_nothing_of_its_own_may_go),
		cmocka_unit_test(test_tenant__a_reserve_survives_when_another_floods),
		cmocka_unit_test(test_tenant__flash_quota_holds_when_a_tenant_floods),
		cmocka_unit_test(test_tenant__flash_quota_is_said_when_all_of_it_is_pinned),
		cmocka_unit_test(test_tenant__a_new_quota_holds_when_it_is_given_at_run_time),
		cmocka_unit_test(test_tenant__limits_are_refused_when_they_cannot_hold),
		cmocka_unit_test(test_tenant__misses_when_the_key_is_anothers),
	};
	return cmocka_run_group_tests_name("tenant", tests, NULL, NULL);
}
