/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests of store/catalog.c: against a model that is one array over a small universe of (space, key, part), so that
 * buckets collide and keys come again, and by cases of their own. One thread.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/random.h"
#include "cairn/cairn.h"
#include "fmt/gone.h"
#include "store/catalog.h"

static struct catalog *open_catalog(uint64_t entries)
{
	struct catalog *catalog = NULL;
	struct catalog_stat stat;
	assert_int_equal(catalog_open(entries * 62, &catalog), 0);
	catalog_stat(catalog, &stat);
	assert_int_equal(stat.capacity, entries);
	assert_int_equal(stat.entries, 0);
	assert_true(stat.bytes <= entries * 62 + 4);
	return catalog;
}

static void prefix_of(uint64_t key, uint8_t prefix[16])
{
	memset(prefix, 0, 16);
	memcpy(prefix + (key % 2 ? 8 : 0), &key, sizeof key); /* both halves count */
}

static uint32_t insert(struct catalog *catalog, uint32_t space, uint64_t key, uint32_t part)
{
	uint8_t prefix[16];
	prefix_of(key, prefix);
	return catalog_insert(catalog, space, prefix, part);
}

static uint32_t find(struct catalog *catalog, uint32_t space, uint64_t key, uint32_t part)
{
	uint8_t prefix[16];
	prefix_of(key, prefix);
	return catalog_find(catalog, space, prefix, part);
}

static uint32_t find_any(struct catalog *catalog, uint32_t space, uint64_t key)
{
	uint8_t prefix[16];
	prefix_of(key, prefix);
	return catalog_find_any(catalog, space, prefix);
}

static struct catalog_stat stat_of(const struct catalog *catalog)
{
	struct catalog_stat stat;
	catalog_stat(catalog, &stat);
	return stat;
}

/* ---- the model -------------------------------------------------------------------------------------------------- */

#define SPACES 2u
#define KEYS 24u
#define PARTS 4u /* and of these one is 63 */
#define UNIVERSE (SPACES * KEYS * PARTS)
#define CAPACITY 120u
#define NONE UINT32_MAX

struct item {
	uint32_t entry; /* 0: not there */
	uint32_t ghost, slot, flash;
	uint32_t parent; /* number of an item, or NONE */
};

struct model {
	struct random random;
	struct catalog *catalog;
	struct item items[UNIVERSE];
	uint32_t n, ghosts;
};

static uint32_t space_of(uint32_t item) { return item / (KEYS * PARTS); }
static uint64_t key_of(uint32_t item) { return 1000 + item / PARTS % KEYS; }
static uint32_t part_of(uint32_t item) { return item % PARTS == PARTS - 1 ? 63 : item % PARTS; }

static uint32_t children_of(const struct model *model, uint32_t item)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < UNIVERSE; i++)
		n += model->items[i].entry && model->items[i].parent == item;
	return n;
}

/* Ghosts without children go, until there are none. */
static void sweep_ghosts(struct model *model)
{
	for (uint32_t again = 1; again;) {
		again = 0;
		for (uint32_t i = 0; i < UNIVERSE; i++) {
			if (!model->items[i].entry || !model->items[i].ghost || children_of(model, i))
				continue;
			model->items[i] = (struct item){.parent = NONE};
			model->n--;
			model->ghosts--;
			again = 1;
		}
	}
}

static int is_above(const struct model *model, uint32_t item, uint32_t from)
{
	while (from != NONE && from != item)
		from = model->items[from].parent;
	return from == item;
}

static void model_insert(struct model *model, uint32_t i)
{
	struct item *item = &model->items[i];
	if (item->entry && !item->ghost)
		return;
	uint32_t entry = insert(model->catalog, space_of(i), key_of(i), part_of(i));
	if (item->ghost) {
		assert_int_equal(entry, item->entry);
		item->ghost = 0;
		model->ghosts--;
	} else if (model->n == CAPACITY) {
		assert_int_equal(entry, 0);
		return;
	} else {
		assert_int_not_equal(entry, 0);
		model->n++;
		item->entry = entry;
		item->parent = NONE;
	}
	struct catalog_entry *e = catalog_at(model->catalog, entry);
	assert_true(!e->slot && !e->flags && !e->page && !e->length && !e->used && !e->holds && !catalog_birth(e));
	item->slot = (uint32_t)random_below(&model->random, 3);
	item->flash = (uint32_t)random_below(&model->random, 2);
	e->slot = item->slot;
	e->flags = item->flash ? CATALOG_FLASH | CATALOG_DURABLE : 0;
	e->length = i + 1;
	catalog_set_birth(e, 0x0000fedcba987654u + i);
	catalog_set_check(e, 0x0123456789abcdefu * (i + 1));
}

static void model_set_parent(struct model *model, uint32_t i, uint32_t parent)
{
	struct item *item = &model->items[i];
	if (!item->entry || (parent != NONE && !model->items[parent].entry))
		return;
	catalog_set_parent(model->catalog, item->entry, parent == NONE ? 0 : model->items[parent].entry);
	item->parent = parent == NONE || is_above(model, i, parent) ? NONE : parent;
	sweep_ghosts(model);
}

static void model_remove(struct model *model, uint32_t i)
{
	struct item *item = &model->items[i];
	if (!item->entry)
		return;
	catalog_remove(model->catalog, item->entry);
	model->ghosts += !item->ghost;
	*item = (struct item){.entry = item->entry, .ghost = 1, .parent = item->parent};
	sweep_ghosts(model);
}

static int cookie;

static int ready(void *arg, uint32_t slot)
{
	assert_ptr_equal(arg, &cookie);
	assert_int_not_equal(slot, 0);
	return slot == 1;
}

static void assert_key(struct model *model, uint32_t space, uint32_t key)
{
	uint64_t memory = 0, flash = 0, seen_memory, seen_flash;
	uint32_t any = NONE, ghost = NONE, first = (space * KEYS + key) * PARTS;
	uint8_t prefix[16];
	for (uint32_t i = first; i < first + PARTS; i++) {
		const struct item *item = &model->items[i];
		assert_int_equal(find(model->catalog, space, 1000 + key, part_of(i)), item->entry);
		if (!item->entry)
			continue;
		const struct catalog_entry *e = catalog_at(model->catalog, item->entry);
		assert_true(e->space == space && e->part == part_of(i) && e->children == children_of(model, i));
		assert_int_equal(e->parent, item->parent == NONE ? 0 : model->items[item->parent].entry);
		assert_int_equal(e->flags & CATALOG_GHOST, item->ghost ? CATALOG_GHOST : 0);
		assert_int_equal(catalog_orphan(model->catalog, item->entry),
		                 !item->ghost && item->parent != NONE && model->items[item->parent].ghost);
		if (item->ghost) {
			ghost = ghost == NONE ? i : ghost;
			continue;
		}
		assert_true(e->length == i + 1 && e->slot == item->slot && catalog_birth(e) == 0x0000fedcba987654u + i);
		assert_true(catalog_check_of(e) == 0x0123456789abcdefu * (i + 1));
		any = any == NONE ? i : any;
		memory |= (uint64_t)(item->slot == 1) << part_of(i);
		flash |= (uint64_t)item->flash << part_of(i);
	}
	any = any == NONE ? ghost : any;
	assert_int_equal(find_any(model->catalog, space, 1000 + key), any == NONE ? 0 : model->items[any].entry);
	prefix_of(1000 + key, prefix);
	catalog_presence(model->catalog, space, prefix, ready, &cookie, 0, &seen_memory, &seen_flash);
	assert_true(seen_memory == memory && seen_flash == flash);
}

static void assert_as_model(struct model *model)
{
	struct catalog_stat stat = stat_of(model->catalog);
	assert_int_equal(stat.entries, model->n);
	assert_int_equal(stat.ghosts, model->ghosts);
	for (uint32_t space = 0; space < SPACES; space++) {
		for (uint32_t key = 0; key < KEYS; key++)
			assert_key(model, space, key);
	}
	uint32_t n = 0;
	for (uint32_t entry = 0; (entry = catalog_next(model->catalog, entry)); n++)
		assert_true(catalog_at(model->catalog, entry)->part <= 63);
	assert_int_equal(n, model->n);
	catalog_verify(model->catalog);
}

static void run_model(uint64_t seed, uint32_t steps)
{
	struct model *model = calloc(1, sizeof *model);
	assert_non_null(model);
	random_init(&model->random, seed);
	for (uint32_t i = 0; i < UNIVERSE; i++)
		model->items[i].parent = NONE;
	model->catalog = open_catalog(CAPACITY);
	for (uint32_t step = 0; step < steps; step++) {
		uint32_t i = (uint32_t)random_below(&model->random, UNIVERSE);
		uint64_t what = random_below(&model->random, 16), inserts = step / 400 % 2 ? 4 : 8;
		if (what < inserts)
			model_insert(model, i);
		else if (what < inserts + 4)
			model_set_parent(model, i, (uint32_t)random_below(&model->random, UNIVERSE));
		else if (what == 15)
			model_set_parent(model, i, NONE);
		else
			model_remove(model, i);
		assert_as_model(model);
	}
	for (uint32_t i = 0; i < UNIVERSE; i++)
		model_remove(model, i);
	assert_int_equal(stat_of(model->catalog).entries, 0);
	catalog_verify(model->catalog);
	catalog_close(model->catalog);
	free(model);
}

/* ---- tests: entries --------------------------------------------------------------------------------------------- */

static void test_catalog__is_as_the_model_when_random(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 5; seed++)
		run_model(seed, 3000);
}

static void test_catalog__open_leaves_nothing_when_allocation_fails(void **state)
{
	(void)state;
	catalog_close(NULL);
	for (uint64_t n = 1;; n++) {
		struct catalog *catalog = NULL;
		mem_fail_at(n, 0);
		int status = catalog_open(1 << 20, &catalog);
		int failed = mem_failed();
		mem_fail_at(0, 0);
		if (!failed) {
			assert_int_equal(status, 0);
			catalog_close(catalog);
			break;
		}
		assert_int_equal(status, CAIRN_E_NOMEM);
		assert_null(catalog);
	}
}

static void test_catalog__open_works_when_the_budget_is_tiny(void **state)
{
	(void)state;
	for (uint64_t budget = 0; budget < 200; budget += 31) {
		struct catalog *catalog = NULL;
		assert_int_equal(catalog_open(budget, &catalog), 0);
		uint32_t entry = insert(catalog, 0, 1, 0);
		assert_int_not_equal(entry, 0);
		catalog_verify(catalog);
		catalog_remove(catalog, entry);
		catalog_verify(catalog);
		catalog_close(catalog);
	}
}

static long resident_pages(void)
{
	long all = 0, resident = 0;
	FILE *file = fopen("/proc/self/statm", "r");
	if (file) {
		if (fscanf(file, "%ld %ld", &all, &resident) != 2)
			resident = 0;
		fclose(file);
	}
	return resident;
}

static void test_catalog__open_touches_little_when_large(void **state)
{
	struct catalog *catalog = NULL;
	long before = resident_pages();
	(void)state;
	assert_int_equal(catalog_open(1ull << 30, &catalog), 0);
	for (uint32_t key = 0; key < 20; key++)
		assert_int_not_equal(insert(catalog, 1, key, 0), 0);
	long touched = resident_pages() - before;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	touched = 0;
#endif
#ifdef __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
	touched = 0;
#endif
#endif
	assert_true(touched < 1024);
	assert_int_equal(stat_of(catalog).capacity, (1u << 30) / 62);
	assert_true(stat_of(catalog).bytes <= 1u << 30);
	catalog_close(catalog);
}

static void test_catalog__keys_are_apart_when_one_field_differs(void **state)
{
	struct catalog *catalog = open_catalog(1000);
	uint8_t prefix[16] = {0};
	uint32_t entries[16 * 8 + 3];
	(void)state;
	entries[0] = catalog_insert(catalog, 0, prefix, 0);
	entries[1] = catalog_insert(catalog, 65535, prefix, 0);
	entries[2] = catalog_insert(catalog, 0, prefix, 63);
	for (uint32_t bit = 0; bit < 128; bit++) {
		prefix[bit / 8] ^= (uint8_t)(1u << bit % 8);
		entries[bit + 3] = catalog_insert(catalog, 0, prefix, 0);
		prefix[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	for (uint32_t i = 0; i < 131; i++) {
		assert_int_not_equal(entries[i], 0);
		for (uint32_t j = 0; j < i; j++)
			assert_int_not_equal(entries[i], entries[j]);
	}
	assert_int_equal(catalog_find(catalog, 0, prefix, 0), entries[0]);
	assert_int_equal(catalog_find(catalog, 65535, prefix, 0), entries[1]);
	assert_int_equal(catalog_find(catalog, 0, prefix, 63), entries[2]);
	assert_int_equal(catalog_find(catalog, 1, prefix, 0), 0);
	assert_int_equal(catalog_find(catalog, 0, prefix, 1), 0);
	catalog_verify(catalog);
	catalog_close(catalog);
}

static void test_catalog__all_parts_come_with_one_probe_when_there_are_64(void **state)
{
	struct catalog *catalog = open_catalog(100);
	uint64_t memory, flash;
	uint8_t prefix[16];
	(void)state;
	for (uint32_t part = 64; part--;) {
		struct catalog_entry *e = catalog_at(catalog, insert(catalog, 3, 5, part));
		e->slot = part % 2 + 1;
		e->flags = part % 3 ? 0 : CATALOG_FLASH;
	}
	prefix_of(5, prefix);
	catalog_presence(catalog, 3, prefix, ready, &cookie, 0, &memory, &flash);
	for (uint32_t part = 0; part < 64; part++) {
		assert_int_equal(memory >> part & 1, part % 2 == 0);
		assert_int_equal(flash >> part & 1, part % 3 == 0);
	}
	catalog_presence(catalog, 2, prefix, ready, &cookie, 0, &memory, &flash);
	assert_true(!memory && !flash);
	catalog_close(catalog);
}

static void test_catalog__guess_is_proved_by_the_key(void **state)
{
	struct catalog *catalog = open_catalog(100);
	cairn_key keys[CATALOG_WARM];
	uint32_t entries[CATALOG_WARM];
	(void)state;
	memset(keys, 0, sizeof keys);
	for (uint32_t i = 0; i < CATALOG_WARM; i++) {
		prefix_of(i, keys[i].bytes);
		if (i % 2 == 0)
			entries[i] = insert(catalog, 1, i, 0);
	}
	entries[1] = insert(catalog, 1, 1, 1);
	catalog_warm(catalog, 1, keys, CATALOG_WARM); /* of keys that are there and that are not: nothing comes of it */
	catalog_warm(catalog, 1, keys, 0);
	for (uint32_t i = 0; i < CATALOG_WARM; i += 2) {
		assert_ptr_equal(catalog_guess(catalog, entries[i], 1, 1, keys[i].bytes), catalog_at(catalog, entries[i]));
		assert_null(catalog_guess(catalog, entries[i], UINT32_MAX, 2, keys[i].bytes));
		assert_null(catalog_guess(catalog, entries[i], 1, 1, keys[(i + 2) % CATALOG_WARM].bytes));
	}
	assert_null(catalog_guess(catalog, entries[1], 1, 1, keys[1].bytes)); /* not part 0 */
	assert_null(catalog_guess(catalog, 0, 1, 1, keys[0].bytes));
	assert_null(catalog_guess(catalog, 101, 1, 1, keys[0].bytes));
	assert_null(catalog_guess(catalog, UINT32_MAX, UINT32_MAX, 1, keys[0].bytes));
	catalog_remove(catalog, entries[4]);
	assert_null(catalog_guess(catalog, entries[4], 1, 1, keys[4].bytes)); /* freed */
	catalog_verify(catalog);
	catalog_close(catalog);
}

/* All are met, and no more is looked at than was allowed, wherever the holes are. */
static void test_catalog__walk_keeps_to_its_steps_when_there_are_holes(void **state)
{
	(void)state;
	struct catalog *catalog = open_catalog(2000);
	uint32_t entries[1000], met = 0, rounds = 0, at = 0, steps, entry;
	for (uint32_t i = 0; i < 1000; i++)
		assert_int_not_equal(entries[i] = insert(catalog, 1, i, 0), 0);
	for (uint32_t i = 0; i < 1000; i++)
		if (i != 3 && i != 500 && i != 999)
			catalog_remove(catalog, entries[i]);
	do {
		uint32_t was = at;
		steps = 100;
		while ((entry = catalog_next_within(catalog, at, &steps, &at)))
			met++;
		assert_true(at - was == 100 - steps && ++rounds < 20);
	} while (!steps);
	assert_int_equal(met, 3);
	assert_int_equal(rounds, 11);
	catalog_close(catalog);
}

static void test_catalog__insert_refuses_when_full(void **state)
{
	struct catalog *catalog = open_catalog(500);
	(void)state;
	for (uint32_t key = 0; key < 500; key++)
		assert_int_not_equal(insert(catalog, 1, key, 0), 0);
	assert_int_equal(insert(catalog, 1, 500, 0), 0);
	catalog_verify(catalog);
	/* A ghost takes an entry too, and comes back to life in its own. */
	uint32_t entry = find(catalog, 1, 77, 0), child = find(catalog, 1, 78, 0);
	catalog_set_parent(catalog, child, entry);
	catalog_remove(catalog, entry);
	assert_int_equal(insert(catalog, 1, 500, 0), 0);
	assert_int_equal(insert(catalog, 1, 77, 0), entry);
	assert_int_equal(catalog_at(catalog, entry)->children, 1);
	catalog_remove(catalog, entry);
	catalog_remove(catalog, child);
	assert_int_equal(stat_of(catalog).entries, 498);
	assert_int_not_equal(insert(catalog, 1, 500, 0), 0);
	assert_int_not_equal(insert(catalog, 1, 501, 0), 0);
	assert_int_equal(insert(catalog, 1, 502, 0), 0);
	catalog_verify(catalog);
	catalog_close(catalog);
}

/* ---- tests: chains ---------------------------------------------------------------------------------------------- */

static void test_catalog__chain_goes_to_the_end_when_orphans_are_removed(void **state)
{
	enum { LENGTH = 8192 };
	struct catalog *catalog = open_catalog(LENGTH);
	uint32_t parent = 0;
	(void)state;
	for (uint32_t key = 0; key < LENGTH; key++) {
		uint32_t entry = insert(catalog, 1, key, 0);
		catalog_set_parent(catalog, entry, parent);
		parent = entry;
	}
	catalog_verify(catalog);
	assert_int_equal(catalog_orphan(catalog, find(catalog, 1, LENGTH / 2 + 1, 0)), 0);
	catalog_remove(catalog, find(catalog, 1, LENGTH / 2, 0));
	assert_int_equal(catalog_orphan(catalog, find(catalog, 1, LENGTH / 2 + 1, 0)), 1);
	for (uint32_t removed = 1, laps = 0; removed; laps++) {
		assert_true(laps < 3);
		removed = 0;
		for (uint32_t entry = 0; (entry = catalog_next(catalog, entry));) {
			if (!catalog_orphan(catalog, entry))
				continue;
			catalog_remove(catalog, entry);
			removed++;
		}
	}
	assert_int_equal(stat_of(catalog).entries, LENGTH / 2);
	assert_int_equal(stat_of(catalog).ghosts, 0);
	catalog_verify(catalog);
	catalog_close(catalog);
}

static void test_catalog__ghosts_go_all_at_once_when_the_last_child_goes(void **state)
{
	enum { LENGTH = 5000 };
	struct catalog *catalog = open_catalog(LENGTH);
	uint32_t parent = 0;
	(void)state;
	for (uint32_t key = 0; key < LENGTH; key++) {
		uint32_t entry = insert(catalog, 1, key, 0);
		catalog_set_parent(catalog, entry, parent);
		parent = entry;
	}
	for (uint32_t key = 0; key + 1 < LENGTH; key++)
		catalog_remove(catalog, find(catalog, 1, key, 0));
	assert_int_equal(stat_of(catalog).ghosts, LENGTH - 1);
	catalog_verify(catalog);
	catalog_remove(catalog, find(catalog, 1, 7, 0)); /* of a ghost: nothing */
	assert_int_equal(stat_of(catalog).ghosts, LENGTH - 1);
	catalog_remove(catalog, parent);
	assert_int_equal(stat_of(catalog).entries, 0);
	assert_int_equal(stat_of(catalog).ghosts, 0);
	catalog_verify(catalog);
	catalog_close(catalog);
}

static void test_catalog__parent_counts_as_none_when_it_would_close_a_circle(void **state)
{
	struct catalog *catalog = open_catalog(100);
	uint32_t a = insert(catalog, 1, 1, 0), b = insert(catalog, 1, 2, 0), c = insert(catalog, 1, 3, 0);
	(void)state;
	catalog_set_parent(catalog, a, a);
	assert_int_equal(catalog_at(catalog, a)->parent, 0);
	catalog_set_parent(catalog, b, a);
	catalog_set_parent(catalog, c, b);
	catalog_set_parent(catalog, a, c);
	assert_int_equal(catalog_at(catalog, a)->parent, 0);
	assert_int_equal(catalog_at(catalog, c)->children, 0);
	catalog_verify(catalog);
	catalog_set_parent(catalog, c, a); /* no circle: only a shorter way */
	assert_int_equal(catalog_at(catalog, c)->parent, a);
	assert_int_equal(catalog_at(catalog, a)->children, 2);
	catalog_verify(catalog);
	catalog_close(catalog);
}

static void test_catalog__children_stay_when_their_count_is_saturated(void **state)
{
	enum { CHILDREN = 66000 };
	struct catalog *catalog = open_catalog(CHILDREN + 2);
	uint32_t head = insert(catalog, 1, CHILDREN, 0), parent = insert(catalog, 1, CHILDREN + 1, 0);
	(void)state;
	catalog_set_parent(catalog, parent, head);
	for (uint32_t key = 0; key < CHILDREN; key++) {
		catalog_set_parent(catalog, insert(catalog, 1, key, 0), parent);
		if (key == 65533)
			assert_int_equal(catalog_at(catalog, parent)->children, 65534);
	}
	assert_int_equal(catalog_at(catalog, parent)->children, UINT16_MAX);
	catalog_verify(catalog);
	catalog_remove(catalog, parent);
	catalog_remove(catalog, head);
	for (uint32_t key = 0; key < CHILDREN; key++)
		catalog_remove(catalog, find(catalog, 1, key, 0));
	/* How many there are is no longer known, so both stay: as ghosts, and found as such. */
	assert_int_equal(stat_of(catalog).entries, 2);
	assert_int_equal(stat_of(catalog).ghosts, 2);
	assert_int_equal(find_any(catalog, 1, CHILDREN + 1), parent);
	assert_int_equal(catalog_at(catalog, parent)->children, UINT16_MAX);
	catalog_verify(catalog);
	catalog_close(catalog);
}

/* ---- tests: remembered keys ------------------------------------------------------------------------------------- */

static struct catalog_memory recall(const struct catalog *catalog, uint32_t space, uint64_t key, uint32_t part)
{
	struct catalog_memory memory = {9, 9, 9, 9};
	uint8_t prefix[16], id[32] = {(uint8_t)space};
	prefix_of(key, prefix);
	catalog_recall(catalog, gone_print(id, prefix, part), &memory);
	return memory;
}

static void remember(struct catalog *catalog, uint32_t space, uint64_t key, uint32_t part, struct catalog_memory memory)
{
	uint8_t prefix[16], id[32] = {(uint8_t)space};
	prefix_of(key, prefix);
	catalog_remember(catalog, gone_print(id, prefix, part), &memory);
}

static void test_catalog__remembers_what_was_told_when_asked(void **state)
{
	struct catalog *catalog = open_catalog(1000);
	struct catalog_memory memory;
	(void)state;
	assert_int_equal(recall(catalog, 1, 5, 0).reason, 0);
	assert_int_equal(recall(catalog, 1, 5, 0).when_s, 0);
	remember(catalog, 1, 5, 0, (struct catalog_memory){CAIRN_WHY_EVICTED, CAIRN_TIER_FLASH, 7, 1700000000});
	remember(catalog, 1, 5, 63, (struct catalog_memory){CAIRN_WHY_DROPPED, CAIRN_TIER_MEMORY, 1u << 20, UINT64_MAX});
	memory = recall(catalog, 1, 5, 0);
	assert_int_equal(memory.reason, CAIRN_WHY_EVICTED);
	assert_int_equal(memory.tier, CAIRN_TIER_FLASH);
	assert_int_equal(memory.uses, 7);
	assert_int_equal(memory.when_s, 1700000000);
	memory = recall(catalog, 1, 5, 63);
	assert_int_equal(memory.reason, CAIRN_WHY_DROPPED);
	assert_int_equal(memory.uses, 65535);
	assert_int_equal(memory.when_s, UINT32_MAX);
	assert_int_equal(recall(catalog, 1, 5, 1).reason, 0);
	assert_int_equal(recall(catalog, 2, 5, 0).reason, 0);
	assert_int_equal(recall(catalog, 1, 6, 0).reason, 0);
	/* The last word holds, be it older; and it may be to forget. */
	remember(catalog, 1, 5, 0, (struct catalog_memory){CAIRN_WHY_DAMAGED, CAIRN_TIER_FLASH, 8, 5});
	assert_int_equal(recall(catalog, 1, 5, 0).reason, CAIRN_WHY_DAMAGED);
	assert_int_equal(recall(catalog, 1, 5, 0).when_s, 5);
	remember(catalog, 1, 5, 0, (struct catalog_memory){0});
	assert_int_equal(recall(catalog, 1, 5, 0).reason, 0);
	remember(catalog, 1, 6, 0, (struct catalog_memory){0});
	assert_int_equal(recall(catalog, 1, 5, 63).reason, CAIRN_WHY_DROPPED);
	catalog_close(catalog);
}

static void test_catalog__forgets_the_oldest_when_a_set_is_full(void **state)
{
	struct catalog *catalog = NULL;
	(void)state;
	assert_int_equal(catalog_open(512, &catalog), 0); /* one set of four */
	for (uint32_t key = 0; key < 4; key++)
		remember(catalog, 1, key, 0, (struct catalog_memory){CAIRN_WHY_EVICTED, 1, 0, 100 + (key + 2) % 4});
	for (uint32_t key = 0; key < 4; key++)
		assert_int_equal(recall(catalog, 1, key, 0).when_s, 100 + (key + 2) % 4);
	remember(catalog, 1, 4, 0, (struct catalog_memory){CAIRN_WHY_EVICTED, 1, 0, 200});
	assert_int_equal(recall(catalog, 1, 2, 0).reason, 0); /* the one of 100 */
	remember(catalog, 1, 0, 0, (struct catalog_memory){0});
	remember(catalog, 1, 5, 0, (struct catalog_memory){CAIRN_WHY_EVICTED, 1, 0, 201});
	for (uint32_t key = 1; key < 6; key++)
		assert_int_equal(recall(catalog, 1, key, 0).reason, key == 2 ? 0 : CAIRN_WHY_EVICTED);
	catalog_close(catalog);
}

static void test_catalog__remembers_the_young_when_many_go(void **state)
{
	struct catalog *catalog = open_catalog(10000);
	uint32_t young = 0, false_hits = 0;
	(void)state;
	for (uint32_t key = 0; key < 20000; key++)
		remember(catalog, 1, key, key % 64, (struct catalog_memory){CAIRN_WHY_EVICTED, 2, key, key});
	for (uint32_t key = 18000; key < 20000; key++) {
		struct catalog_memory memory = recall(catalog, 1, key, key % 64);
		assert_true(!memory.reason || memory.when_s == key);
		young += memory.reason != 0;
	}
	for (uint32_t key = 0; key < 20000; key++)
		false_hits += recall(catalog, 2, key, key % 64).reason != 0;
	assert_true(young > 1900);
	assert_int_equal(false_hits, 0);
	catalog_close(catalog);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_catalog__is_as_the_model_when_random),
		cmocka_unit_test(test_catalog__open_leaves_nothing_when_allocation_fails),
		cmocka_unit_test(test_catalog__open_works_when_the_budget_is_tiny),
		cmocka_unit_test(test_catalog__open_touches_little_when_large),
		cmocka_unit_test(test_catalog__keys_are_apart_when_one_field_differs),
		cmocka_unit_test(test_catalog__all_parts_come_with_one_probe_when_there_are_64),
		cmocka_unit_test(test_catalog__guess_is_proved_by_the_key),
		cmocka_unit_test(test_catalog__walk_keeps_to_its_steps_when_there_are_holes),
		cmocka_unit_test(test_catalog__insert_refuses_when_full),
		cmocka_unit_test(test_catalog__chain_goes_to_the_end_when_orphans_are_removed),
		cmocka_unit_test(test_catalog__ghosts_go_all_at_once_when_the_last_child_goes),
		cmocka_unit_test(test_catalog__parent_counts_as_none_when_it_would_close_a_circle),
		cmocka_unit_test(test_catalog__children_stay_when_their_count_is_saturated),
		cmocka_unit_test(test_catalog__remembers_what_was_told_when_asked),
		cmocka_unit_test(test_catalog__forgets_the_oldest_when_a_set_is_full),
		cmocka_unit_test(test_catalog__remembers_the_young_when_many_go),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
