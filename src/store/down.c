/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From memory to flash under a write budget: what is about to leave memory goes down by whole chains, as
 * policy/admit.h draws them; what is refused leaves without a write. Without a budget puts write at once (put.c), and
 * nothing here runs but for hints. docs/POLICY.md says why.
 *
 * A margin of memory is kept ahead: parts that were judged, written where their chain is in, and then go before all
 * others, so that a put does not wait for a write. Whoever uses one of them takes it back.
 *
 * Threads: under the store's lock, which is never let go here. Memory: none.
 * Invariant: a part goes down after the blocks before it in its chain, so that flash holds no chain without its head.
 */
#include <string.h>

#include "base/check.h"
#include "fmt/gone.h"
#include "store/store.h"

enum { DOWN_STEPS = 64 }; /* parts judged in one go */
#define MARGIN_SHARE 8u /* of memory is kept ahead */

int down_budgeted(const cairn *store)
{
	return store->write_budget.rate_bytes_s > 0;
}

/* In memory, whole, and not in flash nor on its way there. */
static int memory_only(cairn *store, const struct catalog_entry *e)
{
	if ((e->flags & (CATALOG_FLASH | CATALOG_GHOST)) || !e->slot)
		return 0;
	const struct memory_slot *s = memory_slot(store->memory, e->slot);
	return s->state == MEMORY_READY && !s->dirty && s->refs < UINT16_MAX;
}

int down_part(cairn *store, uint32_t entry, const struct store_call *call)
{
	const struct catalog_entry *e = catalog_at(store->catalog, entry);
	uint8_t key[32];
	if (list_empty(&store->reqs_free) || !tenant_may_ask(store, store->spaces[e->space - 1]->tenant))
		return CAIRN_E_BUSY; /* to wait would let go of the lock */
	memcpy(key, e->prefix, 16);
	memcpy(key + 16, memory_slot(store->memory, e->slot)->key_rest, 16);
	return write_start(store, store->spaces[e->space - 1], entry, key, 0, call, NULL);
}

uint32_t down_list(cairn *store, uint32_t entry, uint32_t ret_list[DOWN_LIST])
{
	uint32_t ring[DOWN_LIST], n = 0;
	for (uint32_t at = entry; at;) {
		const struct catalog_entry *e = catalog_at(store->catalog, at);
		if (memory_only(store, e))
			ring[n++ % DOWN_LIST] = at;
		else if (at != entry)
			break; /* it went down before, and what is above it too */
		at = e->parent;
	}
	uint32_t length = n < DOWN_LIST ? n : DOWN_LIST;
	for (uint32_t i = 0; i < length; i++)
		ret_list[i] = ring[(n - 1 - i) % DOWN_LIST];
	return length;
}

int down_chain(cairn *store, uint32_t entry, const struct store_call *call)
{
	uint32_t list[DOWN_LIST], n;
	while ((n = down_list(store, entry, list)))
		for (uint32_t i = 0; i < n; i++) {
			int error = down_part(store, list[i], call);
			if (error)
				return error;
		}
	return 0;
}

/* The first block after a branching, or of the chain. */
static uint32_t root_of(cairn *store, uint32_t entry)
{
	for (;;) {
		uint32_t parent = catalog_at(store->catalog, entry)->parent;
		if (!parent)
			return entry;
		const struct catalog_entry *p = catalog_at(store->catalog, parent);
		if (p->children > 1 || (p->flags & CATALOG_GHOST))
			return entry;
		entry = parent;
	}
}

/* Whether the chain of a part that is about to leave memory is to be in flash. */
static int admitted(cairn *store, uint32_t entry)
{
	const struct catalog_entry *e = catalog_at(store->catalog, entry), *below = NULL;
	if (e->flags & (CATALOG_TAIL | CATALOG_CLOSED))
		return 0;
	/* A chain leaves tail first: its next part has the root of the one before, and the walk is not made again. */
	if (store->down_last)
		below = catalog_peek(store->catalog, store->down_last);
	if (!below || catalog_birth(below) != store->down_birth || below->parent != entry || e->children > 1) {
		uint32_t root = root_of(store, entry);
		const struct catalog_entry *r = catalog_at(store->catalog, root);
		store->down_root = gone_print(store->spaces[r->space - 1]->id, r->prefix, 0);
		store->down_returned = r->uses > 1;
	}
	store->down_last = entry;
	store->down_birth = catalog_birth(e);
	return admit_chain(&store->admit, store->down_root, (int)store->down_returned,
	                   admit_budget_left(&store->write_budget));
}

void down_ahead(cairn *store, uint32_t tenant, int now)
{
	static const struct store_call background = {.background = 1};
	struct memory_stat memory;
	if (!down_budgeted(store) || !store_has_flash(store) || (store->flags & CAIRN_OPEN_READONLY) || store->leaving)
		return;
	memory_stat(store->memory, &memory);
	uint64_t margin = memory.capacity_bytes / MARGIN_SHARE, slots = memory.slots_max / MARGIN_SHARE;
	if (!now && memory.used_bytes + 2 * margin < memory.capacity_bytes && memory.slots + 2 * slots < memory.slots_max)
		return;
	admit_budget_fill(&store->write_budget, clock_mono_ns(store->clock));
	for (int i = 0; i < DOWN_STEPS; i++) {
		if (memory_leaving(store->memory, tenant) >= margin || store->dirty_bytes > store->dirty_max / 2)
			return;
		uint32_t slot = memory_next(store->memory, tenant);
		if (!slot)
			return;
		uint32_t entry = memory_slot(store->memory, slot)->entry;
		if (memory_only(store, catalog_at(store->catalog, entry)) && admitted(store, entry) &&
		    down_chain(store, entry, &background))
			return;
		memory_touch(store->memory, slot, MEMORY_LEAVING);
	}
}
