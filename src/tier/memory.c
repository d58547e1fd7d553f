/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory tier: extents, the runs of pages in them, and the slots that name the runs. Recency lists: recent.c.
 *
 * A part over 32 KiB takes a run of whole pages, found in its extent's bitmap by next fit with wrap. A smaller one
 * takes 1, 2, 4 or 8 cells in a page that it shares with parts of its tenant and class. A tenant that has no room
 * evicts its own parts; one that has none to evict drains an extent of the tenant furthest over its fair share: at most
 * one extent is in drain, and nothing new goes into it, so that it does become empty.
 *
 * Threads: under the store's lock. Memory: all taken and touched at open; an extent that changes hands is replaced by a
 * new memfd of the same length, whose pages come when they are used, after the old ones have gone back.
 * Invariant: `owner` names each taken run once, at its first cell; the bitmap has a bit for each page in which an owned
 * cell lies, and for no other. A page is in a partial list if it is shared, has a free cell, and is not in drain.
 */
#include "tier/memory_in.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "base/err.h"
#include "base/mem.h"
#include "cairn/cairn.h"
#include "tier/extent.h"

#define MEMORY_BUDGET_MIN (8u << 20) /* so an extent has at least 2 MiB */
#define EXTENT_MAX (1u << 30)
#define SLOTS_MIN 1024u
#define SLOT_BYTES 16384u /* budget per slot */
#define CELLS_IN_PAGE (MEMORY_PAGE / MEMORY_CELL)
#define CELLS_ALL 0xffffu /* mask of a full shared page */
#define SHARED_MAX (MEMORY_PAGE / 2) /* longest part that shares a page */
#define CLASSES MEMORY_CLASSES
#define NOBODY UINT32_MAX

enum page_kind {
	PAGE_FREE = 0,
	PAGE_RUN = 1,  /* first page of a run */
	PAGE_TAIL = 2, /* further page of a run */
	PAGE_SHARED = 3,
};

/* ---- extents ---------------------------------------------------------------------------------------------------- */

static void extent_drop(const struct memory *memory, struct memory_extent *extent)
{
	if (!extent->base)
		return;
	munmap(extent->base, memory->extent_bytes);
	close(extent->fd);
	extent->base = NULL;
}

/* New bytes for an extent that goes to another tenant, so that this one sees nothing of the last. */
static void extent_renew(struct memory *memory, struct memory_extent *extent)
{
	int fd;
	uint8_t *base;
	if (extent_make(memory->extent_bytes, &fd, &base)) {
		memset(extent->base, 0, memory->extent_bytes);
		return;
	}
	/* Its pages take the place of those that go now. They come when they are used, by whoever fills a part: to touch
	 * 1 GiB here would hold the store's lock for half a second. */
	if (memory->gone)
		memory->gone(memory->gone_arg, extent->base);
	extent_drop(memory, extent);
	memory->generation++;
	extent->fd = fd;
	extent->base = base;
}

static void extent_give(struct memory *memory, uint32_t index, uint32_t tenant)
{
	struct memory_extent *extent = &memory->extents[index];
	check(extent->used == 0 && extent->tenant != tenant);
	if (extent->tenant != NOBODY) {
		extent_renew(memory, extent);
		memory->tenants[extent->tenant].extents--;
	}
	extent->tenant = tenant;
	extent->next = 0;
	memory->tenants[tenant].extents++;
}

/* ---- bitmaps ---------------------------------------------------------------------------------------------------- */

/* The first page >= from whose bit is `set`, or `end`. */
static uint32_t bits_next(const uint64_t *bits, uint32_t from, uint32_t end, int set)
{
	while (from < end) {
		uint64_t word = (set ? bits[from / 64] : ~bits[from / 64]) >> from % 64;
		if (word) {
			from += (uint32_t)__builtin_ctzll(word);
			return from < end ? from : end;
		}
		from = (from / 64 + 1) * 64;
	}
	return end;
}

/* The first of `n` pages in a row that are free, wholly in [from, end); NOBODY: there are none. */
static uint32_t bits_run(const uint64_t *bits, uint32_t from, uint32_t end, uint32_t n)
{
	while (from < end && end - from >= n) {
		uint32_t first = bits_next(bits, from, end, 0);
		if (end - first < n)
			return NOBODY;
		from = bits_next(bits, first, first + n, 1);
		if (from == first + n)
			return first;
	}
	return NOBODY;
}

static void bits_put(uint64_t *bits, uint32_t from, uint32_t n, int set)
{
	while (n) {
		uint32_t shift = from % 64, here = n < 64 - shift ? n : 64 - shift;
		uint64_t mask = (here == 64 ? ~0ull : (1ull << here) - 1) << shift;
		check((bits[from / 64] & mask) == (set ? 0 : mask));
		bits[from / 64] ^= mask;
		from += here;
		n -= here;
	}
}

/* ---- pages ------------------------------------------------------------------------------------------------------ */

static uint32_t cells_of(uint32_t length)
{
	if (length > SHARED_MAX)
		return (length + MEMORY_PAGE - 1) / MEMORY_PAGE * CELLS_IN_PAGE;
	uint32_t cells = 1;
	while (cells * MEMORY_CELL < length)
		cells *= 2;
	return cells;
}

static void partial_add(struct memory *memory, uint32_t index, uint32_t tenant)
{
	struct memory_page *page = &memory->pages[index];
	uint32_t *head = &memory->tenants[tenant].partial[page->class];
	page->prev = 0;
	page->next = *head;
	if (*head)
		memory->pages[*head - 1].prev = index + 1;
	*head = index + 1;
}

static void partial_remove(struct memory *memory, uint32_t index, uint32_t tenant)
{
	struct memory_page *page = &memory->pages[index];
	if (page->next)
		memory->pages[page->next - 1].prev = page->prev;
	if (page->prev)
		memory->pages[page->prev - 1].next = page->next;
	else
		memory->tenants[tenant].partial[page->class] = page->next;
	page->next = page->prev = 0;
}

/* A run of `n` pages in one extent, as the first page; NOBODY: it has none. */
static uint32_t extent_take(struct memory *memory, uint32_t index, uint32_t n)
{
	struct memory_extent *extent = &memory->extents[index];
	uint32_t pages = memory->extent_pages;
	if (pages - extent->used < n || n >= extent->hopeless)
		return NOBODY;
	uint32_t first = bits_run(extent->bits, extent->next, pages, n);
	if (first == NOBODY) {
		uint32_t end = extent->next + n - 1; /* a run that begins before `next` may reach past it */
		first = bits_run(extent->bits, 0, end < pages ? end : pages, n);
	}
	if (first == NOBODY) {
		extent->hopeless = n;
		return NOBODY;
	}
	bits_put(extent->bits, first, n, 1);
	extent->next = first + n < pages ? first + n : 0;
	if (!extent->used)
		memory->empty--;
	extent->used += n;
	memory->tenants[extent->tenant].current = index;
	return index * pages + first;
}

static void extent_put(struct memory *memory, uint32_t page, uint32_t n)
{
	uint32_t index = page / memory->extent_pages;
	struct memory_extent *extent = &memory->extents[index];
	bits_put(extent->bits, page % memory->extent_pages, n, 0);
	for (uint32_t i = 0; i < n; i++)
		memory->pages[page + i].kind = PAGE_FREE;
	extent->hopeless = UINT32_MAX;
	extent->used -= n;
	if (extent->used)
		return;
	memory->empty++;
	if (memory->drain == index + 1)
		memory->drain = 0;
}

/* ---- drain ------------------------------------------------------------------------------------------------------ */

/* Takes an extent's shared pages out of the partial lists (drain 1), or puts them back (0). */
static void drain_pages(struct memory *memory, uint32_t index, int drain)
{
	uint32_t first = index * memory->extent_pages, tenant = memory->extents[index].tenant;
	for (uint32_t page = first; page < first + memory->extent_pages; page++) {
		if (memory->pages[page].kind != PAGE_SHARED || memory->pages[page].cells == CELLS_ALL)
			continue;
		if (drain)
			partial_remove(memory, page, tenant);
		else
			partial_add(memory, page, tenant);
	}
}

static void drain_start(struct memory *memory, uint32_t index)
{
	check(!memory->drain);
	memory->drain = index + 1;
	memory->drain_cell = 0;
	drain_pages(memory, index, 1);
}

static void drain_stop(struct memory *memory)
{
	if (!memory->drain)
		return;
	drain_pages(memory, memory->drain - 1, 0);
	memory->drain = 0;
}

/* The first cell >= from of an extent at which a run begins, as a cell of the extent; NOBODY: none. */
static uint32_t extent_next(const struct memory *memory, uint32_t index, uint32_t from)
{
	uint32_t start = index * memory->extent_pages * CELLS_IN_PAGE, end = memory->extent_pages * CELLS_IN_PAGE;
	while (from < end) {
		uint8_t kind = memory->pages[(start + from) / CELLS_IN_PAGE].kind;
		if (kind == PAGE_FREE || kind == PAGE_TAIL) {
			from = (from / CELLS_IN_PAGE + 1) * CELLS_IN_PAGE;
			continue;
		}
		if (memory->owner[start + from])
			return from;
		from++;
	}
	return NOBODY;
}

/* A part of the extent in drain that can be evicted; 0: only parts in use are left. */
static uint32_t drain_next(struct memory *memory)
{
	uint32_t index = memory->drain - 1, start = index * memory->extent_pages * CELLS_IN_PAGE;
	int lap = memory->drain_cell ? 2 : 1; /* what was in use when the search went by may be free now */
	while (lap--) {
		for (;;) {
			uint32_t cell = extent_next(memory, index, memory->drain_cell);
			if (cell == NOBODY)
				break;
			memory->drain_cell = cell + 1;
			uint32_t slot = memory->owner[start + cell];
			if (memory->slots[slot].state == MEMORY_READY && !recent_busy(memory, slot))
				return slot;
		}
		memory->drain_cell = 0;
	}
	return 0;
}

/* The tenant's extent that is drained soonest: least parts in use, then least pages. */
static uint32_t drain_choose(const struct memory *memory, uint32_t tenant)
{
	uint32_t best = NOBODY, best_busy = 0;
	for (uint32_t index = 0; index < memory->nextents; index++) {
		const struct memory_extent *extent = &memory->extents[index];
		uint32_t start = index * memory->extent_pages * CELLS_IN_PAGE, busy = 0;
		if (extent->tenant != tenant || !extent->used)
			continue;
		for (uint32_t cell = 0; (cell = extent_next(memory, index, cell)) != NOBODY; cell++) {
			const struct memory_slot *s = &memory->slots[memory->owner[start + cell]];
			busy += s->refs || s->state != MEMORY_READY;
		}
		if (best == NOBODY || busy < best_busy || (busy == best_busy && extent->used < memory->extents[best].used)) {
			best = index;
			best_busy = busy;
		}
	}
	return best;
}

/* ---- open and close --------------------------------------------------------------------------------------------- */

int memory_open(uint64_t budget_bytes, struct memory **ret_memory)
{
	if (budget_bytes < MEMORY_BUDGET_MIN)
		return err_set(CAIRN_E_INVAL, "memory tier: %llu bytes are below the least, 8 MiB",
		               (unsigned long long)budget_bytes);
	if (budget_bytes / MEMORY_CELL >= UINT32_MAX)
		return err_set(CAIRN_E_INVAL, "memory tier: over 16 TiB");
	struct memory *memory = mem_alloc(sizeof *memory);
	if (!memory)
		return err_set(CAIRN_E_NOMEM, "memory tier: out of memory");
	memory->extent_bytes = budget_bytes / 4 / MEMORY_PAGE * MEMORY_PAGE;
	if (memory->extent_bytes > EXTENT_MAX)
		memory->extent_bytes = EXTENT_MAX;
	memory->nextents = (uint32_t)(budget_bytes / memory->extent_bytes);
	memory->extent_pages = (uint32_t)(memory->extent_bytes / MEMORY_PAGE);
	memory->words = (memory->extent_pages + 63) / 64;
	memory->nslots = (uint32_t)(budget_bytes / SLOT_BYTES);
	if (memory->nslots < SLOTS_MIN)
		memory->nslots = SLOTS_MIN;
	memory->empty = memory->nextents;

	uint64_t pages = (uint64_t)memory->nextents * memory->extent_pages;
	memory->extents = mem_array(memory->nextents, sizeof *memory->extents);
	memory->bits = mem_array((size_t)memory->nextents * memory->words, sizeof *memory->bits);
	memory->pages = mem_array(pages, sizeof *memory->pages);
	memory->owner = mem_array(pages * CELLS_IN_PAGE, sizeof *memory->owner);
	memory->slots = mem_array((size_t)memory->nslots + 1, sizeof *memory->slots);
	if (!memory->extents || !memory->bits || !memory->pages || !memory->owner || !memory->slots) {
		memory_close(memory);
		return err_set(CAIRN_E_NOMEM, "memory tier: out of memory");
	}
	for (uint32_t i = 0; i < memory->nextents; i++) {
		struct memory_extent *extent = &memory->extents[i];
		extent->bits = memory->bits + (size_t)i * memory->words;
		extent->tenant = NOBODY;
		extent->hopeless = UINT32_MAX;
		if (memory->extent_pages % 64)
			extent->bits[memory->words - 1] = ~0ull << memory->extent_pages % 64;
		if (extent_make(memory->extent_bytes, &extent->fd, &extent->base) ||
		    extent_touch(extent->base, memory->extent_bytes)) {
			memory_close(memory);
			return CAIRN_E_NOMEM;
		}
	}
	*ret_memory = memory;
	return 0;
}

void memory_close(struct memory *memory)
{
	if (!memory)
		return;
	for (uint32_t i = 0; memory->extents && i < memory->nextents; i++)
		extent_drop(memory, &memory->extents[i]);
	mem_free(memory->slots);
	mem_free(memory->owner);
	mem_free(memory->pages);
	mem_free(memory->bits);
	mem_free(memory->extents);
	mem_free(memory);
}

/* ---- take ------------------------------------------------------------------------------------------------------- */

/* Whether a tenant's quota leaves room for another extent. */
static int extents_more(const struct memory *memory, uint32_t tenant)
{
	const struct memory_tenant *t = &memory->tenants[tenant];
	uint64_t quota = t->limits.quota_bytes;
	return !quota || !t->extents || t->extents * memory->extent_bytes < quota;
}

/* Extents that others may not take from it. */
static uint32_t extents_reserved(const struct memory *memory, uint32_t tenant)
{
	uint64_t bytes = memory->tenants[tenant].limits.reserved_bytes;
	return (uint32_t)((bytes + memory->extent_bytes - 1) / memory->extent_bytes);
}

void memory_limit(struct memory *memory, uint32_t tenant, const struct memory_limits *limits)
{
	check(tenant < MEMORY_TENANTS_MAX);
	memory->tenants[tenant].limits = *limits;
}

int memory_over(const struct memory *memory, uint32_t tenant, uint32_t length)
{
	check(tenant < MEMORY_TENANTS_MAX);
	const struct memory_tenant *t = &memory->tenants[tenant];
	uint64_t more = length ? (uint64_t)cells_of(length) * MEMORY_CELL : 0;
	return t->limits.quota_bytes && t->used_bytes + more > t->limits.quota_bytes;
}

int memory_owed(const struct memory *memory, uint32_t tenant)
{
	check(tenant < MEMORY_TENANTS_MAX);
	return memory->tenants[tenant].extents < extents_reserved(memory, tenant);
}

uint64_t memory_tenant_used(const struct memory *memory, uint32_t tenant)
{
	check(tenant < MEMORY_TENANTS_MAX);
	return memory->tenants[tenant].used_bytes;
}

uint64_t memory_extent_bytes(const struct memory *memory)
{
	return memory->extent_bytes;
}

/* An extent for a tenant that has no room in its own: one that never had a tenant before one that must be made anew. */
static uint32_t empty_take(struct memory *memory, uint32_t tenant, uint32_t n)
{
	uint32_t best = NOBODY;
	if (!memory->empty || !extents_more(memory, tenant))
		return NOBODY;
	for (uint32_t index = 0; index < memory->nextents; index++) {
		const struct memory_extent *extent = &memory->extents[index];
		if (extent->used || extent->tenant == tenant)
			continue;
		best = index;
		if (extent->tenant == NOBODY)
			break;
	}
	if (best == NOBODY)
		return NOBODY;
	extent_give(memory, best, tenant);
	return extent_take(memory, best, n);
}

static uint32_t pages_take(struct memory *memory, uint32_t tenant, uint32_t n)
{
	struct memory_tenant *t = &memory->tenants[tenant];
	uint32_t index = t->current, page;
	for (uint32_t i = 0, seen = 0; i < memory->nextents && seen < t->extents; i++) {
		if (memory->extents[index].tenant == tenant) {
			seen++;
			if (memory->drain != index + 1 && (page = extent_take(memory, index, n)) != NOBODY)
				return page;
		}
		index = index + 1 < memory->nextents ? index + 1 : 0;
	}
	page = empty_take(memory, tenant, n);
	if (page != NOBODY)
		return page;
	/* What is left is its extent in drain. It gives that up only when it can evict nothing to make room elsewhere: else
	 * a busy tenant would take back what it owes. */
	if (!memory->drain || memory->extents[memory->drain - 1].tenant != tenant || memory_victim(memory, tenant))
		return NOBODY;
	index = memory->drain - 1;
	drain_stop(memory);
	return extent_take(memory, index, n);
}

/* The first cell of a run of whole pages; NOBODY: no room. */
static uint32_t run_take(struct memory *memory, uint32_t tenant, uint32_t cells)
{
	uint32_t n = cells / CELLS_IN_PAGE, page = pages_take(memory, tenant, n);
	if (page == NOBODY)
		return NOBODY;
	memory->pages[page].kind = PAGE_RUN;
	for (uint32_t i = 1; i < n; i++)
		memory->pages[page + i].kind = PAGE_TAIL;
	return page * CELLS_IN_PAGE;
}

/* The first of some cells in a shared page; NOBODY: no room. */
static uint32_t cells_take(struct memory *memory, uint32_t tenant, uint32_t cells)
{
	uint32_t class = (uint32_t)__builtin_ctz(cells);
	uint32_t *head = &memory->tenants[tenant].partial[class];
	if (!*head) {
		uint32_t index = pages_take(memory, tenant, 1);
		if (index != NOBODY) {
			memory->pages[index].kind = PAGE_SHARED;
			memory->pages[index].class = (uint8_t)class;
			memory->pages[index].cells = 0;
			partial_add(memory, index, tenant);
		}
	}
	if (!*head) /* pages_take may also have ended a drain, and so brought pages back */
		return NOBODY;
	uint32_t index = *head - 1, shift = 0, mask = (1u << cells) - 1;
	struct memory_page *page = &memory->pages[index];
	while (page->cells & mask << shift)
		shift += cells;
	check(shift < CELLS_IN_PAGE);
	page->cells |= (uint16_t)(mask << shift);
	if (page->cells == CELLS_ALL)
		partial_remove(memory, index, tenant);
	return index * CELLS_IN_PAGE + shift;
}

static int slot_left(const struct memory *memory)
{
	return memory->free_slots || memory->fresh < memory->nslots;
}

uint32_t memory_take(struct memory *memory, uint32_t tenant, uint32_t length)
{
	check(tenant < MEMORY_TENANTS_MAX && length > 0);
	if (length > memory_part_max(memory) || !slot_left(memory) || memory_over(memory, tenant, length))
		return 0;
	uint32_t cells = cells_of(length);
	uint32_t cell = length > SHARED_MAX ? run_take(memory, tenant, cells) : cells_take(memory, tenant, cells);
	if (cell == NOBODY)
		return 0;
	uint32_t slot = memory->free_slots;
	if (slot)
		memory->free_slots = memory->slots[slot].older;
	else
		__atomic_store_n(&memory->fresh, slot = memory->fresh + 1,
		                 __ATOMIC_RELAXED); /* memory_slot reads it unlocked */
	struct memory_slot *s = &memory->slots[slot];
	check(s->state == MEMORY_UNUSED);
	*s = (struct memory_slot){
		.cell = cell, .length = length, .refs = 1, .state = MEMORY_FILLING, .tenant = (uint8_t)tenant};
	check(!memory->owner[cell]);
	memory->owner[cell] = slot;
	memory->used_slots++;
	memory->used_bytes += (uint64_t)cells * MEMORY_CELL;
	memory->tenants[tenant].used_bytes += (uint64_t)cells * MEMORY_CELL;
	memory->tenants[tenant].slots++;
	return slot;
}

/* ---- free ------------------------------------------------------------------------------------------------------- */

uint32_t memory_victim_elsewhere(struct memory *memory, uint32_t tenant)
{
	check(tenant < MEMORY_TENANTS_MAX);
	struct memory_tenant *t = memory->tenants;
	uint32_t donor = NOBODY, holders = !t[tenant].extents;
	int slots = !slot_left(memory); /* what is short: slots, or else extents */
	int owed = memory_owed(memory, tenant);
	for (uint32_t i = 0; i < MEMORY_TENANTS_MAX; i++) {
		holders += t[i].extents > 0;
		if (i == tenant || (slots ? t[i].used_bytes <= t[i].limits.reserved_bytes
		                          : t[i].extents <= extents_reserved(memory, i)))
			continue;
		if (donor == NOBODY || (slots ? t[i].slots > t[donor].slots : t[i].extents > t[donor].extents))
			donor = i;
	}
	if (donor == NOBODY)
		return 0;
	if (slots)
		return owed || t[donor].slots > t[tenant].slots ? memory_victim(memory, donor) : 0;
	if (!extents_more(memory, tenant))
		return 0;
	if (!owed && ((uint64_t)t[donor].extents * holders <= memory->nextents || t[donor].extents <= t[tenant].extents))
		return 0;
	if (memory->drain && memory->extents[memory->drain - 1].tenant != donor)
		drain_stop(memory);
	uint32_t victim = memory->drain ? drain_next(memory) : 0;
	if (victim)
		return victim;
	/* Nothing is in drain, or only parts in use are left of it: is there a better one by now? */
	uint32_t best = drain_choose(memory, donor);
	if (best == NOBODY || memory->drain == best + 1)
		return 0;
	drain_stop(memory);
	drain_start(memory, best);
	return drain_next(memory);
}

/* Gives back the room of a slot. */
static void room_put(struct memory *memory, uint32_t cell, uint32_t cells, uint32_t tenant)
{
	uint32_t index = cell / CELLS_IN_PAGE;
	struct memory_page *page = &memory->pages[index];
	memory->owner[cell] = 0;
	if (cells >= CELLS_IN_PAGE) {
		extent_put(memory, index, cells / CELLS_IN_PAGE);
		return;
	}
	uint32_t mask = ((1u << cells) - 1) << cell % CELLS_IN_PAGE;
	int full = page->cells == CELLS_ALL, drain = memory->drain == index / memory->extent_pages + 1;
	check(page->kind == PAGE_SHARED && (page->cells & mask) == mask);
	page->cells &= (uint16_t)~mask;
	if (page->cells && full && !drain)
		partial_add(memory, index, tenant);
	if (page->cells)
		return;
	if (!full && !drain)
		partial_remove(memory, index, tenant);
	extent_put(memory, index, 1);
}

void memory_free(struct memory *memory, uint32_t slot)
{
	struct memory_slot *s = memory_slot(memory, slot);
	check(s->refs <= 1);
	if (recent_has(memory, slot))
		recent_remove(memory, slot);
	uint32_t cells = cells_of(s->length);
	check(memory->owner[s->cell] == slot);
	room_put(memory, s->cell, cells, s->tenant);
	memory->used_bytes -= (uint64_t)cells * MEMORY_CELL;
	memory->used_slots--;
	memory->tenants[s->tenant].used_bytes -= (uint64_t)cells * MEMORY_CELL;
	memory->tenants[s->tenant].slots--;
	*s = (struct memory_slot){.older = memory->free_slots};
	memory->free_slots = slot;
}

/* ---- look ------------------------------------------------------------------------------------------------------- */

uint32_t memory_part_max(const struct memory *memory)
{
	return (uint32_t)memory->extent_bytes;
}

struct memory_slot *memory_slot(struct memory *memory, uint32_t slot)
{
	check(slot && slot <= __atomic_load_n(&memory->fresh, __ATOMIC_RELAXED));
	check(memory->slots[slot].state != MEMORY_UNUSED);
	return &memory->slots[slot];
}

uint32_t memory_slot_after(const struct memory *memory, uint32_t slot)
{
	while (++slot <= memory->fresh)
		if (memory->slots[slot].state != MEMORY_UNUSED)
			return slot;
	return 0;
}

void *memory_address(struct memory *memory, uint32_t slot)
{
	uint32_t cell = memory_slot(memory, slot)->cell, cells = memory->extent_pages * CELLS_IN_PAGE;
	return memory->extents[cell / cells].base + (size_t)(cell % cells) * MEMORY_CELL;
}

void memory_place(const struct memory *memory, uint32_t slot, int *ret_fd, uint64_t *ret_offset)
{
	check(slot && slot <= memory->fresh && memory->slots[slot].state != MEMORY_UNUSED);
	uint32_t cell = memory->slots[slot].cell, cells = memory->extent_pages * CELLS_IN_PAGE;
	*ret_fd = memory->extents[cell / cells].fd;
	*ret_offset = (uint64_t)(cell % cells) * MEMORY_CELL;
}

uint64_t memory_generation(const struct memory *memory)
{
	return memory->generation;
}

int memory_extent_fd(const struct memory *memory, uint32_t extent)
{
	return extent < memory->nextents ? memory->extents[extent].fd : -1;
}

void *memory_extent_at(const struct memory *memory, uint32_t extent, uint64_t *ret_length)
{
	*ret_length = memory->extent_bytes;
	return extent < memory->nextents ? memory->extents[extent].base : NULL;
}

void memory_watch(struct memory *memory, void (*gone)(void *arg, const void *address), void *arg)
{
	memory->gone = gone;
	memory->gone_arg = arg;
}

void memory_stat(const struct memory *memory, struct memory_stat *ret_stat)
{
	*ret_stat = (struct memory_stat){
		.capacity_bytes = memory->nextents * memory->extent_bytes,
		.used_bytes = memory->used_bytes,
		.slots = memory->used_slots,
		.slots_max = memory->nslots,
	};
}

uint64_t memory_tenant_bytes(const struct memory *memory, uint32_t tenant)
{
	check(tenant < MEMORY_TENANTS_MAX);
	return memory->tenants[tenant].extents * memory->extent_bytes;
}

/* ---- check ------------------------------------------------------------------------------------------------------ */

static int page_is_partial(const struct memory *memory, uint32_t index)
{
	const struct memory_page *page = &memory->pages[index];
	return page->kind == PAGE_SHARED && page->cells != CELLS_ALL && memory->drain != index / memory->extent_pages + 1;
}

/* The run or the shared cells that begin in a page; returns the number of its pages. */
static uint32_t check_page(const struct memory *memory, uint32_t index, uint32_t tenant, uint64_t *bytes)
{
	const struct memory_page *page = &memory->pages[index];
	const uint32_t *owner = memory->owner + (size_t)index * CELLS_IN_PAGE;
	uint32_t npages = 1, found = 0;
	check(page->kind != PAGE_TAIL);
	for (uint32_t cell = 0; cell < CELLS_IN_PAGE; cell++) {
		if (!owner[cell])
			continue;
		const struct memory_slot *s = &memory->slots[owner[cell]];
		check(owner[cell] <= memory->fresh && s->state != MEMORY_UNUSED && s->tenant == tenant);
		check(s->cell == index * CELLS_IN_PAGE + cell);
		uint32_t cells = cells_of(s->length);
		*bytes += (uint64_t)cells * MEMORY_CELL;
		if (cells >= CELLS_IN_PAGE) {
			check(page->kind == PAGE_RUN && cell == 0 && !found);
			npages = cells / CELLS_IN_PAGE;
			found = CELLS_ALL;
		} else {
			uint32_t mask = ((1u << cells) - 1) << cell;
			check(page->kind == PAGE_SHARED && cells == 1u << page->class && !(found & mask) && mask <= CELLS_ALL);
			found |= mask;
		}
	}
	check(page->kind == PAGE_FREE ? !found : found != 0);
	check(page->kind != PAGE_SHARED || page->cells == found);
	check(page_is_partial(memory, index) || (!page->next && !page->prev));
	for (uint32_t i = 1; i < npages; i++)
		check(page[i].kind == PAGE_TAIL);
	return npages;
}

/* Returns the number of its pages that belong into a partial list. */
static uint32_t check_extent(const struct memory *memory, uint32_t index, uint64_t *bytes)
{
	const struct memory_extent *extent = &memory->extents[index];
	uint32_t start = index * memory->extent_pages, used = 0, partial = 0;
	for (uint32_t page = 0, n; page < memory->extent_pages; page += n) {
		n = check_page(memory, start + page, extent->tenant, bytes);
		check(page + n <= memory->extent_pages);
		int taken = memory->pages[start + page].kind != PAGE_FREE;
		for (uint32_t i = page; i < page + n; i++)
			check((int)(extent->bits[i / 64] >> i % 64 & 1) == taken);
		used += taken ? n : 0;
		partial += (uint32_t)page_is_partial(memory, start + page);
	}
	for (uint32_t i = memory->extent_pages; i < memory->words * 64; i++)
		check(extent->bits[i / 64] >> i % 64 & 1);
	check(used == extent->used && (extent->tenant != NOBODY || !used) && extent->next < memory->extent_pages);
	check(extent->hopeless == UINT32_MAX ||
	      bits_run(extent->bits, 0, memory->extent_pages, extent->hopeless) == NOBODY);
	return partial;
}

/* Returns the number of pages in its partial lists. */
static uint32_t check_tenant(const struct memory *memory, uint32_t tenant)
{
	const struct memory_tenant *t = &memory->tenants[tenant];
	uint32_t listed = recent_check(memory, tenant), slots = 0, ready = 0, extents = 0, partial = 0;
	uint64_t bytes = 0;
	for (uint32_t slot = 1; slot <= memory->fresh; slot++) {
		const struct memory_slot *s = &memory->slots[slot];
		if (s->state == MEMORY_UNUSED || s->tenant != tenant)
			continue;
		slots++;
		bytes += (uint64_t)cells_of(s->length) * MEMORY_CELL;
		ready += (uint32_t)recent_has(memory, slot);
	}
	check(slots == t->slots && ready == listed && bytes == t->used_bytes);
	for (uint32_t i = 0; i < memory->nextents; i++)
		extents += memory->extents[i].tenant == tenant;
	check(extents == t->extents);
	for (uint32_t class = 0; class < CLASSES; class++) {
		for (uint32_t page = t->partial[class], prev = 0; page; prev = page, page = memory->pages[page - 1].next) {
			const struct memory_page *p = &memory->pages[page - 1];
			check(p->prev == prev && p->class == class && page_is_partial(memory, page - 1));
			check(memory->extents[(page - 1) / memory->extent_pages].tenant == tenant);
			check(++partial <= memory->nextents * memory->extent_pages);
		}
	}
	return partial;
}

void memory_check(const struct memory *memory)
{
	uint64_t bytes = 0;
	uint32_t empty = 0, partial = 0, listed = 0, used = 0, unused = 0;
	for (uint32_t i = 0; i < memory->nextents; i++) {
		partial += check_extent(memory, i, &bytes);
		empty += !memory->extents[i].used;
	}
	check(bytes == memory->used_bytes && empty == memory->empty);
	check(memory->drain <= memory->nextents && (!memory->drain || memory->extents[memory->drain - 1].used));
	for (uint32_t i = 0; i < MEMORY_TENANTS_MAX; i++) {
		const struct memory_tenant *t = &memory->tenants[i];
		if (t->slots || t->extents || recent_check(memory, i))
			listed += check_tenant(memory, i);
		else
			check(!t->partial[0] && !t->partial[1] && !t->partial[2] && !t->partial[3] && !t->used_bytes);
	}
	check(partial == listed);
	for (uint32_t slot = 1; slot <= memory->fresh; slot++) {
		const struct memory_slot *s = &memory->slots[slot];
		used += s->state != MEMORY_UNUSED;
		check(s->state == MEMORY_UNUSED || memory->owner[s->cell] == slot);
	}
	for (uint32_t slot = memory->free_slots; slot; slot = memory->slots[slot].older)
		check(memory->slots[slot].state == MEMORY_UNUSED && ++unused <= memory->fresh);
	check(used == memory->used_slots && used + unused == memory->fresh && memory->fresh <= memory->nslots);
}
