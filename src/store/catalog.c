/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The catalog: one array of entries, buckets that chain them by (space, prefix), a free list, and the table of
 * remembered keys.
 *
 * Threads: under the store's lock. Memory: three arrays, all taken at open and zero; none is touched before it is used,
 * so that a large catalog of a small store stays small. Budget / 62 entries; the remembered keys take an eighth of the
 * budget on top (a cell per two entries).
 * Invariant: `fresh` is the highest entry ever used; below it an entry is in its bucket or, with part PART_FREE, in the
 * free list. Parents form no circle, so every walk up a chain ends, and a ghost goes with its last child.
 */
#include "store/catalog.h"

#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/digest.h"
#include "base/err.h"
#include "base/mem.h"
#include "cairn/cairn.h"

#define ENTRY_BYTES 62u /* an entry and its share of the buckets */
#define PARTS_MAX 64u
#define PART_FREE 0x7fu
#define CHILDREN_MAX UINT16_MAX
#define USES_MAX UINT16_MAX
#define WAYS 4u

/* A remembered key. */
struct cell {
	uint64_t print;  /* of space, prefix, part; 0: empty */
	uint32_t when_s; /* wall clock; enough until 2106 */
	uint16_t uses;   /* saturates */
	uint8_t tier, reason;
};
_Static_assert(sizeof(struct cell) == 16, "the remembered keys' bound");

struct catalog {
	struct catalog_entry *entries; /* entry n is entries[n - 1] */
	uint32_t *buckets;             /* first entry; 0: none */
	struct cell *cells;            /* sets of WAYS */
	uint32_t nentries, nbuckets, nsets;
	uint32_t fresh, free; /* free: a list by `next` */
	uint32_t used, ghosts;
	uint64_t seed[2]; /* random, so that nobody can choose keys that fall into one bucket */
};

static uint64_t mix(uint64_t a, uint64_t b)
{
	__extension__ unsigned __int128 product = (unsigned __int128)a * b;
	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t hash_of(const struct catalog *catalog, uint32_t space, const uint8_t prefix[16])
{
	uint64_t low = mix(bytes_get64(prefix) ^ catalog->seed[0], (space + 1) * 0x9e3779b97f4a7c15ull);
	return mix(low ^ catalog->seed[1], bytes_get64(prefix + 8) ^ 0xa0761d6478bd642full);
}

static uint32_t range(uint64_t hash, uint32_t n)
{
	return (uint32_t)((hash >> 32) * n >> 32);
}

static uint32_t *bucket_of(const struct catalog *catalog, uint32_t space, const uint8_t prefix[16])
{
	return &catalog->buckets[range(hash_of(catalog, space, prefix), catalog->nbuckets)];
}

static int same_key(const struct catalog_entry *e, uint32_t space, const uint8_t prefix[16])
{
	return e->space == space && !memcmp(e->prefix, prefix, sizeof e->prefix);
}

/* ---- open and close --------------------------------------------------------------------------------------------- */

int catalog_open(uint64_t budget_bytes, struct catalog **ret_catalog)
{
	uint64_t nentries = budget_bytes / ENTRY_BYTES, nsets = budget_bytes / 8 / sizeof(struct cell) / WAYS;
	struct catalog *catalog = mem_alloc(sizeof *catalog);
	if (!catalog)
		return err_set(CAIRN_E_NOMEM, "catalog: out of memory");
	/* Entries are numbered by 32 bits. */
	nentries = nentries < 1 ? 1 : nentries > UINT32_MAX - 1 ? UINT32_MAX - 1 : nentries;
	nsets = nsets < 1 ? 1 : nsets > UINT32_MAX ? UINT32_MAX : nsets;
	catalog->nentries = (uint32_t)nentries;
	catalog->nbuckets = (uint32_t)((nentries + 1) / 2);
	catalog->nsets = (uint32_t)nsets;
	catalog->entries = mem_table(catalog->nentries, sizeof *catalog->entries);
	catalog->buckets = mem_array(catalog->nbuckets, sizeof *catalog->buckets);
	catalog->cells = mem_array((size_t)catalog->nsets * WAYS, sizeof *catalog->cells);
	if (!catalog->entries || !catalog->buckets || !catalog->cells) {
		catalog_close(catalog);
		return err_set(CAIRN_E_NOMEM, "catalog: %llu bytes are not to be had", (unsigned long long)budget_bytes);
	}
	digest_random(catalog->seed, sizeof catalog->seed);
	*ret_catalog = catalog;
	return 0;
}

void catalog_close(struct catalog *catalog)
{
	if (!catalog)
		return;
	mem_free(catalog->cells);
	mem_free(catalog->buckets);
	mem_free(catalog->entries);
	mem_free(catalog);
}

/* ---- find ------------------------------------------------------------------------------------------------------- */

struct catalog_entry *catalog_at(struct catalog *catalog, uint32_t entry)
{
	check(entry && entry <= catalog->fresh && catalog->entries[entry - 1].part != PART_FREE);
	return &catalog->entries[entry - 1];
}

struct catalog_entry *catalog_entries(struct catalog *catalog)
{
	return catalog->entries;
}

struct catalog_entry *catalog_peek(struct catalog *catalog, uint32_t entry)
{
	check(entry && entry <= catalog->fresh);
	return catalog->entries[entry - 1].part == PART_FREE ? NULL : &catalog->entries[entry - 1];
}

uint32_t catalog_find(struct catalog *catalog, uint32_t space, const uint8_t prefix[16], uint32_t part)
{
	for (uint32_t entry = *bucket_of(catalog, space, prefix); entry; entry = catalog->entries[entry - 1].next) {
		const struct catalog_entry *e = &catalog->entries[entry - 1];
		if (e->part == part && same_key(e, space, prefix))
			return entry;
	}
	return 0;
}

const struct catalog_entry *catalog_guess(const struct catalog *catalog, uint32_t guess, uint32_t step, uint32_t space,
                                          const uint8_t prefix[16])
{
	uint32_t ahead = guess + step * CATALOG_AHEAD;

	if (!guess || guess > catalog->fresh)
		return NULL;
	if (ahead && ahead <= catalog->fresh)
		__builtin_prefetch(&catalog->entries[ahead - 1], 1);
	const struct catalog_entry *e = &catalog->entries[guess - 1];
	return !e->part && same_key(e, space, prefix) ? e : NULL;
}

uint32_t catalog_find_any(struct catalog *catalog, uint32_t space, const uint8_t prefix[16])
{
	uint32_t best = 0, best_rank = UINT32_MAX;
	for (uint32_t entry = *bucket_of(catalog, space, prefix); entry; entry = catalog->entries[entry - 1].next) {
		const struct catalog_entry *e = &catalog->entries[entry - 1];
		uint32_t rank = e->part + (e->flags & CATALOG_GHOST ? PARTS_MAX : 0);
		if (rank < best_rank && same_key(e, space, prefix)) {
			best = entry;
			best_rank = rank;
		}
	}
	return best;
}

/* Inline: a compiler takes a function that only does this for one that does nothing, and leaves its call out. */
static inline __attribute__((always_inline)) void entry_prefetch(const struct catalog *catalog, uint32_t entry)
{
	if (!entry)
		return;
	const char *e = (const char *)&catalog->entries[entry - 1];
	__builtin_prefetch(e, 1);
	__builtin_prefetch(e + sizeof *catalog->entries - 1, 1); /* most lie across two lines */
}

void catalog_warm(const struct catalog *catalog, uint32_t space, const cairn_key *keys, size_t nkeys)
{
	uint32_t at[CATALOG_WARM];
	const uint32_t *buckets[CATALOG_WARM];

	check(nkeys <= CATALOG_WARM);
	for (size_t i = 0; i < nkeys; i++) {
		buckets[i] = bucket_of(catalog, space, keys[i].bytes);
		__builtin_prefetch(buckets[i]);
	}
	for (size_t i = 0; i < nkeys; i++) {
		at[i] = *buckets[i];
		entry_prefetch(catalog, at[i]);
	}
	/* Buckets of a full catalog hold two entries on average. */
	for (int step = 0; step < 3; step++)
		for (size_t i = 0; i < nkeys; i++) {
			if (!at[i])
				continue;
			const struct catalog_entry *e = &catalog->entries[at[i] - 1];
			at[i] = same_key(e, space, keys[i].bytes) ? 0 : e->next;
			entry_prefetch(catalog, at[i]);
		}
}

uint32_t catalog_presence(struct catalog *catalog, uint32_t space, const uint8_t prefix[16],
                          int (*ready)(void *arg, uint32_t slot), void *arg, uint32_t shut, uint64_t *ret_memory,
                          uint64_t *ret_flash)
{
	uint64_t memory = 0, flash = 0;
	uint32_t shown = 0;
	for (uint32_t entry = *bucket_of(catalog, space, prefix); entry; entry = catalog->entries[entry - 1].next) {
		const struct catalog_entry *e = &catalog->entries[entry - 1];
		/* A ghost has no place, so it shows in neither mask. A tail is no block. */
		if (!same_key(e, space, prefix) || (e->flags & CATALOG_TAIL))
			continue;
		if (e->slot && ready(arg, e->slot))
			memory |= 1ull << e->part;
		if ((e->flags & CATALOG_FLASH) && !(shut >> e->device & 1))
			flash |= 1ull << e->part;
		if ((memory | flash) >> e->part & 1)
			shown = entry;
	}
	*ret_memory = memory;
	*ret_flash = flash;
	return shown;
}

uint32_t catalog_next(struct catalog *catalog, uint32_t from)
{
	uint32_t steps = UINT32_MAX, at;
	return catalog_next_within(catalog, from, &steps, &at);
}

uint32_t catalog_next_within(struct catalog *catalog, uint32_t from, uint32_t *steps, uint32_t *ret_at)
{
	uint32_t entry = from;
	while (entry < catalog->fresh && *steps) {
		--*steps;
		if (catalog->entries[entry++].part != PART_FREE)
			return *ret_at = entry;
	}
	*ret_at = entry;
	return 0;
}

/* ---- change ----------------------------------------------------------------------------------------------------- */

/* Clears what an entry says of its part; its identity, bucket, parent and children stay. */
static void entry_clear(struct catalog_entry *e)
{
	struct catalog_entry kept = {
		.part = e->part, .space = e->space, .next = e->next, .parent = e->parent, .children = e->children};
	memcpy(kept.prefix, e->prefix, sizeof kept.prefix);
	*e = kept;
}

uint32_t catalog_insert(struct catalog *catalog, uint32_t space, const uint8_t prefix[16], uint32_t part)
{
	check(part < PARTS_MAX && space <= UINT16_MAX);
	uint32_t entry = catalog_find(catalog, space, prefix, part);
	if (entry) {
		check(catalog->entries[entry - 1].flags & CATALOG_GHOST);
		entry_clear(&catalog->entries[entry - 1]);
		catalog->ghosts--;
		return entry;
	}
	entry = catalog->free;
	if (entry)
		catalog->free = catalog->entries[entry - 1].next;
	else if (catalog->fresh < catalog->nentries)
		entry = ++catalog->fresh;
	else
		return 0;
	struct catalog_entry *e = &catalog->entries[entry - 1];
	uint32_t *bucket = bucket_of(catalog, space, prefix);
	*e = (struct catalog_entry){.part = (uint16_t)part & PART_FREE, .space = (uint16_t)space, .next = *bucket};
	memcpy(e->prefix, prefix, sizeof e->prefix);
	*bucket = entry;
	catalog->used++;
	return entry;
}

uint32_t catalog_insert_ghost(struct catalog *catalog, uint32_t space, const uint8_t prefix[16])
{
	check(!catalog_find_any(catalog, space, prefix));
	uint32_t entry = catalog_insert(catalog, space, prefix, 0);
	if (entry) {
		catalog->entries[entry - 1].flags = CATALOG_GHOST;
		catalog->ghosts++;
	}
	return entry;
}

static void entry_free(struct catalog *catalog, uint32_t entry)
{
	struct catalog_entry *e = &catalog->entries[entry - 1];
	uint32_t *link = bucket_of(catalog, e->space, e->prefix);
	while (*link != entry) {
		check(*link);
		link = &catalog->entries[*link - 1].next;
	}
	*link = e->next;
	if (e->flags & CATALOG_GHOST)
		catalog->ghosts--;
	catalog->used--;
	*e = (struct catalog_entry){.part = PART_FREE, .next = catalog->free};
	catalog->free = entry;
}

/* Takes a child from `parent`. A ghost that has none left goes, and then its own parent loses a child. */
static void child_leaves(struct catalog *catalog, uint32_t parent)
{
	while (parent) {
		struct catalog_entry *e = catalog_at(catalog, parent);
		if (e->children == CHILDREN_MAX) /* how many there are is no longer known */
			return;
		check(e->children > 0);
		if (--e->children || !(e->flags & CATALOG_GHOST))
			return;
		uint32_t above = e->parent;
		entry_free(catalog, parent);
		parent = above;
	}
}

/* Whether `entry` is `from` or an ancestor of it. */
static int is_above(const struct catalog *catalog, uint32_t entry, uint32_t from)
{
	while (from && from != entry)
		from = catalog->entries[from - 1].parent;
	return from != 0;
}

void catalog_set_parent(struct catalog *catalog, uint32_t entry, uint32_t parent)
{
	struct catalog_entry *e = catalog_at(catalog, entry);
	uint32_t old = e->parent;
	if (old == parent)
		return;
	/* Whoever puts says what the parent is, and may say a circle. Only an entry that has children can close one. */
	if (parent == entry || (e->children && is_above(catalog, entry, parent)))
		parent = 0;
	if (parent) {
		struct catalog_entry *p = catalog_at(catalog, parent);
		if (p->children < CHILDREN_MAX)
			p->children++;
	}
	e->parent = parent;
	child_leaves(catalog, old);
}

void catalog_remove(struct catalog *catalog, uint32_t entry)
{
	struct catalog_entry *e = catalog_at(catalog, entry);
	check(!e->holds);
	if (e->children) {
		if (!(e->flags & CATALOG_GHOST))
			catalog->ghosts++;
		entry_clear(e);
		e->flags = CATALOG_GHOST;
		return;
	}
	uint32_t parent = e->parent;
	entry_free(catalog, entry);
	child_leaves(catalog, parent);
}

int catalog_orphan(struct catalog *catalog, uint32_t entry)
{
	const struct catalog_entry *e = catalog_at(catalog, entry);
	return e->parent && !(e->flags & CATALOG_GHOST) && catalog->entries[e->parent - 1].flags & CATALOG_GHOST;
}

/* ---- remembered keys -------------------------------------------------------------------------------------------- */

static struct cell *cells_of(const struct catalog *catalog, uint64_t print)
{
	return &catalog->cells[(size_t)range(mix(print ^ catalog->seed[0], 0xe7037ed1a0b428dbull), catalog->nsets) * WAYS];
}

void catalog_remember(struct catalog *catalog, uint64_t print, const struct catalog_memory *memory)
{
	struct cell *set = cells_of(catalog, print), *best = NULL;
	check(print);
	/* Its own cell, else the oldest: an empty one is older than any. */
	for (uint32_t i = 0; i < WAYS; i++) {
		if (set[i].print == print) {
			best = &set[i];
			break;
		}
		if (!best || set[i].when_s < best->when_s)
			best = &set[i];
	}
	if (!memory->reason) {
		if (best->print == print)
			*best = (struct cell){0};
		return;
	}
	check(memory->reason <= UINT8_MAX && memory->tier <= UINT8_MAX);
	*best = (struct cell){
		.print = print,
		.when_s = memory->when_s < UINT32_MAX ? (uint32_t)memory->when_s : UINT32_MAX,
		.uses = memory->uses < USES_MAX ? (uint16_t)memory->uses : USES_MAX,
		.tier = (uint8_t)memory->tier,
		.reason = (uint8_t)memory->reason,
	};
}

uint32_t catalog_memories(const struct catalog *catalog, uint32_t *cursor, uint64_t *ret_print,
                          struct catalog_memory *ret_memory)
{
	while (*cursor < catalog->nsets * WAYS) {
		const struct cell *cell = &catalog->cells[(*cursor)++];
		if (!cell->print)
			continue;
		*ret_print = cell->print;
		*ret_memory = (struct catalog_memory){
			.reason = cell->reason, .tier = cell->tier, .uses = cell->uses, .when_s = cell->when_s};
		return 1;
	}
	return 0;
}

void catalog_recall(const struct catalog *catalog, uint64_t print, struct catalog_memory *ret_memory)
{
	const struct cell *set = cells_of(catalog, print);
	*ret_memory = (struct catalog_memory){0};
	for (uint32_t i = 0; i < WAYS; i++) {
		if (set[i].print == print)
			*ret_memory = (struct catalog_memory){
				.reason = set[i].reason, .tier = set[i].tier, .uses = set[i].uses, .when_s = set[i].when_s};
	}
}

/* ---- stat and verify -------------------------------------------------------------------------------------------- */

void catalog_stat(const struct catalog *catalog, struct catalog_stat *ret_stat)
{
	*ret_stat = (struct catalog_stat){
		.bytes = catalog->nentries * sizeof *catalog->entries + catalog->nbuckets * sizeof *catalog->buckets,
		.capacity = catalog->nentries,
		.entries = catalog->used,
		.ghosts = catalog->ghosts,
	};
}

static void verify_entry(const struct catalog *catalog, uint32_t entry)
{
	const struct catalog_entry *e = &catalog->entries[entry - 1];
	check(e->part < PARTS_MAX);
	if (e->flags & CATALOG_GHOST)
		check(e->flags == CATALOG_GHOST && !e->slot && !e->holds && e->children);
	if (e->parent) {
		check(e->parent <= catalog->fresh && e->parent != entry);
		check(catalog->entries[e->parent - 1].part != PART_FREE && catalog->entries[e->parent - 1].children);
	}
	for (uint32_t other = e->next; other; other = catalog->entries[other - 1].next) {
		const struct catalog_entry *o = &catalog->entries[other - 1];
		check(o->part != e->part || !same_key(o, e->space, e->prefix));
	}
}

/* Parents: that the counts of children are right, and that there is no circle. `marks` has a zero for each entry. */
static void verify_chains(const struct catalog *catalog, uint32_t *marks)
{
	for (uint32_t i = 0; i < catalog->fresh; i++) {
		if (catalog->entries[i].part != PART_FREE && catalog->entries[i].parent)
			marks[catalog->entries[i].parent - 1]++;
	}
	for (uint32_t i = 0; i < catalog->fresh; i++) {
		uint16_t children = catalog->entries[i].children;
		check(children == marks[i] || children == CHILDREN_MAX);
		marks[i] = 0;
	}
	for (uint32_t entry = 1; entry <= catalog->fresh; entry++) {
		uint32_t above = entry;
		for (; above && !marks[above - 1]; above = catalog->entries[above - 1].parent)
			marks[above - 1] = entry;
		check(!above || marks[above - 1] != entry);
	}
}

void catalog_verify(struct catalog *catalog)
{
	uint32_t chained = 0, ghosts = 0, freed = 0;
	for (uint32_t i = 0; i < catalog->nbuckets; i++) {
		for (uint32_t entry = catalog->buckets[i]; entry; entry = catalog->entries[entry - 1].next) {
			const struct catalog_entry *e = &catalog->entries[entry - 1];
			check(entry <= catalog->fresh && ++chained <= catalog->used);
			check(bucket_of(catalog, e->space, e->prefix) == &catalog->buckets[i]);
			verify_entry(catalog, entry);
			ghosts += (e->flags & CATALOG_GHOST) != 0;
		}
	}
	for (uint32_t entry = catalog->free; entry; entry = catalog->entries[entry - 1].next) {
		check(entry <= catalog->fresh && ++freed <= catalog->fresh);
		check(catalog->entries[entry - 1].part == PART_FREE);
	}
	check(chained == catalog->used && ghosts == catalog->ghosts && chained + freed == catalog->fresh);
	check(catalog->fresh <= catalog->nentries);
	/* For tests: where there is no memory for it, the rest stays unchecked. */
	uint32_t *marks = mem_array(catalog->fresh, sizeof *marks);
	if (marks)
		verify_chains(catalog, marks);
	mem_free(marks);
}
