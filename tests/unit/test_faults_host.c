/* SPDX-License-Identifier: Apache-2.0 */
/* src/store/host.c: what a device tells of a part that is not the key's present one changes nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/store_lib.h"

enum { LENGTH = 5000 };

struct host {
	struct world world;
	cairn *store;
	cairn_space *space;
	cairn_key key;
	struct fmt_entry old; /* of a part that was dropped and put anew since */
	uint32_t old_page;
};

static const struct catalog_entry *entry_of(const struct host *host)
{
	uint32_t entry = catalog_find(host->store->catalog, host->space->number, host->key.bytes, 0);
	assert_int_not_equal(entry, 0);
	return catalog_at(host->store->catalog, entry);
}

/* The key's first part in flash, dropped; then a second one, as durable as asked. */
static void host_start(struct host *host, uint32_t durability)
{
	memset(host, 0, sizeof *host);
	world_init(&host->world, 1, 16 * MIB, 8 * MIB);
	host->store = world_open(&host->world);
	host->space = space_named(host->store, NULL, "m");
	host->key = key_at(1, 0);
	put_good(host->store, host->space, &host->key, NULL, LENGTH, CAIRN_DURABLE_FLASH);
	const struct catalog_entry *e = entry_of(host);
	memcpy(host->old.key, host->key.bytes, 32);
	memcpy(host->old.space, host->space->id, 32);
	host->old.birth = catalog_birth(e);
	host->old.raw_length = host->old.stored_length = LENGTH;
	host->old_page = e->page;
	assert_int_equal(cairn_drop(host->store, host->space, &host->key, 1), 1);
	put_good(host->store, host->space, &host->key, NULL, LENGTH, durability);
	assert_true(catalog_birth(entry_of(host)) > host->old.birth);
}

static void host_end(struct host *host)
{
	verify(host->store);
	assert_int_equal(get_status(host->store, host->space, &host->key, LENGTH), CAIRN_OK);
	assert_int_equal(cairn_close(host->store), 0);
	world_done(&host->world);
}

static void test_faults_host__refuses_place_when_part_is_not_the_present_one(void **state)
{
	(void)state;
	struct host host;
	host_start(&host, CAIRN_DURABLE_NONE);
	const struct tier_host *tier = &host.store->host;
	assert_false(entry_of(&host)->flags & CATALOG_FLASH);
	assert_int_equal(tier->stored(tier->arg, 0, &host.old, host.old_page), 0);
	assert_false(entry_of(&host)->flags & CATALOG_FLASH);
	host_end(&host);
}

static void test_faults_host__leaves_part_when_an_older_one_is_told_of(void **state)
{
	(void)state;
	struct host host;
	host_start(&host, CAIRN_DURABLE_FLASH);
	const struct tier_host *tier = &host.store->host;
	uint32_t page = entry_of(&host)->page, place = 0;
	enum evict_verdict verdict;
	assert_int_not_equal(page, host.old_page);
	assert_int_equal(tier->place(tier->arg, 0, &host.old, &place), 0);
	assert_int_equal(tier->judge(tier->arg, 0, &host.old, host.old_page, &verdict), 0);
	assert_int_equal(tier->moved(tier->arg, 0, &host.old, host.old_page, host.old_page + 100), TIER_GONE);
	assert_int_equal(entry_of(&host)->page, page);
	/* Also where it lies at the very place of the older one. */
	assert_int_equal(tier->moved(tier->arg, 0, &host.old, page, host.old_page + 100), TIER_GONE);
	assert_int_equal(entry_of(&host)->page, page);
	/* Found twice at reopen: the newer one counts, whichever comes first. */
	tier->found(tier->arg, 0, &host.old, host.old_page);
	assert_int_equal(entry_of(&host)->page, page);
	assert_true(catalog_birth(entry_of(&host)) > host.old.birth);
	tier->removed(tier->arg, 0, &host.old, host.old_page, CAIRN_WHY_EVICTED);
	tier->removed(tier->arg, 0, &host.old, page, CAIRN_WHY_EVICTED);
	assert_true(entry_of(&host)->flags & CATALOG_FLASH);
	host_end(&host);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_faults_host__refuses_place_when_part_is_not_the_present_one),
		cmocka_unit_test(test_faults_host__leaves_part_when_an_older_one_is_told_of),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
