/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a catalog entry: where a part is, what is counted about it, how it leaves. Every change of presence goes
 * through here, so that catalog, slots, segment accounts, remembered keys and events agree.
 *
 * Threads: all under the store's lock. Memory: tables of spaces only.
 * Invariant: an entry is in memory, in flash, or a ghost; an ancestor's last use is never older than its descendants'.
 */
#include <string.h>

#include "base/check.h"
#include "base/err.h"
#include "base/mem.h"
#include "fmt/gone.h"
#include "store/store.h"

/* ---- spaces ------------------------------------------------------------------------------------------------------ */

struct cairn_space *store_space_by_id(cairn *store, const uint8_t id[32], int create)
{
	for (uint32_t i = 0; i < store->nspaces; i++)
		if (!memcmp(store->spaces[i]->id, id, 32))
			return store->spaces[i];
	if (!create || store->nspaces >= STORE_SPACES)
		return NULL;
	if (store->nspaces == store->spaces_room) {
		uint32_t room = store->spaces_room ? store->spaces_room * 2 : 16;
		struct cairn_space **grown = mem_grow(store->spaces, room * sizeof(struct cairn_space *));
		if (!grown)
			return NULL;
		store->spaces = grown;
		store->spaces_room = room;
	}
	struct cairn_space *space = mem_alloc(sizeof(*space));
	if (!space)
		return NULL;
	space->store = store;
	memcpy(space->id, id, 32);
	space->number = (uint16_t)(store->nspaces + 1);
	store->spaces[store->nspaces++] = space;
	return space;
}

static struct cairn_space *space_of(cairn *store, const struct catalog_entry *e)
{
	check(e->space >= 1 && e->space <= store->nspaces);
	return store->spaces[e->space - 1];
}

/* ---- recency ----------------------------------------------------------------------------------------------------- */

void entry_tick(cairn *store, uint64_t bytes)
{
	store->tick_bytes += bytes;
	store->tick += store->tick_bytes / store->tick_step;
	store->tick_bytes %= store->tick_step;
}

static uint64_t tick_of(const cairn *store, const struct catalog_entry *e)
{
	uint32_t age = evict_age(e->used, (uint16_t)store->tick);
	return store->tick > age ? store->tick - age : 0;
}

static struct account *account_of(cairn *store, const struct catalog_entry *e)
{
	struct device *device = &store->devices[e->device];
	uint32_t segment = e->page / device->pages_per_segment;
	check(segment < device->nsegments);
	return &device->accounts[segment];
}

static void account_add(cairn *store, const struct catalog_entry *e)
{
	struct device *device = &store->devices[e->device];
	struct account *account = account_of(store, e);
	uint64_t use = (uint64_t)(e->length / 1024 + 1) * tick_of(store, e);
	if (!account->live_parts)
		device->used_segments++;
	account->live_parts++;
	account->live_bytes += e->length;
	account->use_sum += use;
	device->live_parts++;
	device->live_bytes += e->length;
	device->use_sum += use;
	struct cairn_space *space = space_of(store, e);
	space->flash_parts++;
	space->flash_bytes += e->length;
	if (e->flags & CATALOG_KEPT) {
		account->kept_bytes += e->length;
		device->kept_bytes += e->length;
	}
}

static void account_sub(cairn *store, const struct catalog_entry *e)
{
	struct device *device = &store->devices[e->device];
	struct account *account = account_of(store, e);
	uint64_t use = (uint64_t)(e->length / 1024 + 1) * tick_of(store, e);
	check(account->live_parts && account->live_bytes >= e->length);
	account->live_parts--;
	account->live_bytes -= e->length;
	/* Ages saturate, so what was added and what is taken can differ a little for very old parts. */
	account->use_sum = !account->live_parts ? 0 : account->use_sum > use ? account->use_sum - use : 0;
	device->live_parts--;
	device->live_bytes -= e->length;
	struct cairn_space *space = space_of(store, e);
	space->flash_parts--;
	space->flash_bytes -= e->length;
	device->use_sum = !device->live_parts ? 0 : device->use_sum > use ? device->use_sum - use : 0;
	if (!account->live_parts)
		device->used_segments--;
	if (e->flags & CATALOG_KEPT) {
		account->kept_bytes -= e->length;
		device->kept_bytes -= e->length;
	}
}

static void use_now(cairn *store, struct catalog_entry *e)
{
	if (e->used == (uint16_t)store->tick)
		return;
	uint64_t kib = e->length / 1024 + 1, was = kib * tick_of(store, e), now = kib * store->tick;
	e->used = (uint16_t)store->tick;
	if (!(e->flags & CATALOG_FLASH))
		return;
	struct device *device = &store->devices[e->device];
	struct account *account = account_of(store, e);
	account->use_sum = (account->use_sum > was ? account->use_sum - was : 0) + now;
	device->use_sum = (device->use_sum > was ? device->use_sum - was : 0) + now;
}

void entry_use_at(cairn *store, struct catalog_entry *e)
{
	e->flags = (uint8_t)((e->flags | CATALOG_USED) & ~CATALOG_CLOSED);
	use_now(store, e);
}

void entry_touch(cairn *store, uint32_t entry, int used)
{
	struct catalog_entry *e = catalog_at(store->catalog, entry);
	if (used)
		entry_use_at(store, e);
	else
		use_now(store, e);
	/* Up the chain until an ancestor was touched in this tick: then all above it were. */
	for (entry = e->parent; entry; entry = e->parent) {
		e = catalog_at(store->catalog, entry);
		if (e->used == (uint16_t)store->tick || (e->flags & CATALOG_GHOST))
			break;
		use_now(store, e);
	}
}

static uint64_t print_of(cairn *store, const struct catalog_entry *e)
{
	return gone_print(space_of(store, e)->id, e->prefix, e->part);
}

static uint32_t class_of(const struct catalog_entry *e)
{
	return index_class(e->uses, (e->flags & CATALOG_TAIL) != 0);
}

uint32_t watch_now(cairn *store)
{
	uint32_t now = watch_time(clock_mono_ns(store->clock));
	memory_time(store->memory, now);
	return now;
}

/* What tells a block in the sample, which lives as long as the process: keys are digests, so their own bits do. */
static uint64_t watch_print(const struct catalog_entry *e)
{
	uint64_t halves[2];
	memcpy(halves, e->prefix, 16);
	return halves[0] ^ halves[1] * 0x9e3779b97f4a7c15ull ^ (uint64_t)e->space << 32 ^ e->part;
}

void entry_count_at(cairn *store, struct catalog_entry *e, uint32_t now)
{
	e->uses = e->uses < CATALOG_USES_MAX ? (e->uses + 1) & CATALOG_USES_MAX : CATALOG_USES_MAX;
	uint64_t print = watch_print(e);
	if (watch_wants(&store->watch, print))
		watch_use(&store->watch, print, class_of(e), now);
}

void entry_count(cairn *store, uint32_t entry)
{
	uint32_t now = watch_now(store);
	(void)watch_minutes(&store->watch, now);
	entry_count_at(store, catalog_at(store->catalog, entry), now);
}

void entry_count_first(cairn *store, uint32_t entry)
{
	struct catalog_entry *e = catalog_at(store->catalog, entry);
	struct catalog_memory memory;
	catalog_recall(store->catalog, print_of(store, e), &memory);
	e->uses = memory.uses < CATALOG_USES_MAX ? memory.uses & CATALOG_USES_MAX : CATALOG_USES_MAX;
	entry_count(store, entry);
}

/* ---- presence ---------------------------------------------------------------------------------------------------- */

void entry_flash_set(cairn *store, uint32_t entry, uint32_t device, uint32_t page)
{
	struct catalog_entry *e = catalog_at(store->catalog, entry);
	check(!(e->flags & CATALOG_FLASH));
	e->device = (uint8_t)device;
	e->page = page;
	e->flags |= CATALOG_FLASH;
	account_add(store, e);
	entry_event(store, e, CAIRN_EVENT_STORED, CAIRN_TIER_FLASH, 0);
}

/* Takes it out of the flash accounts; the caller decides what remains. */
static void flash_forget(cairn *store, struct catalog_entry *e, uint32_t reason)
{
	account_sub(store, e);
	e->flags = (uint8_t)(e->flags & ~(CATALOG_FLASH | CATALOG_DURABLE));
	entry_event(store, e, CAIRN_EVENT_REMOVED, CAIRN_TIER_FLASH, reason);
	struct cairn_tier_stat *stat = &store->stat.tier[CAIRN_TIER_FLASH];
	if (reason == CAIRN_WHY_EVICTED || reason == CAIRN_WHY_ORPHAN) {
		stat->evicted_parts++;
		stat->evicted_bytes += e->length;
		struct cairn_tenant_stat *own = &store->tenants[space_of(store, e)->tenant].stat;
		own->evicted_parts[CAIRN_TIER_FLASH]++;
		own->evicted_bytes[CAIRN_TIER_FLASH] += e->length;
	}
	if (reason == CAIRN_WHY_DAMAGED)
		stat->damaged_parts++;
}

void entry_flash_clear(cairn *store, uint32_t entry, uint32_t reason)
{
	struct catalog_entry *e = catalog_at(store->catalog, entry);
	flash_forget(store, e, reason);
	if (!e->slot)
		entry_gone(store, entry, CAIRN_TIER_FLASH, reason);
}

void entry_flash_move(cairn *store, uint32_t entry, uint32_t page)
{
	struct catalog_entry *e = catalog_at(store->catalog, entry);
	account_sub(store, e);
	e->page = page;
	e->flags |= CATALOG_DURABLE; /* it was flushed before this is told */
	account_add(store, e);
}

void entry_flash_forget(cairn *store, uint32_t entry)
{
	struct catalog_entry *e = catalog_at(store->catalog, entry);
	account_sub(store, e);
	e->flags = (uint8_t)(e->flags & ~(CATALOG_FLASH | CATALOG_DURABLE));
	count_presence(store, e, CAIRN_EVENT_REMOVED, CAIRN_TIER_FLASH, 0);
}

void entry_set_kept(cairn *store, uint32_t entry, int kept)
{
	struct catalog_entry *e = catalog_at(store->catalog, entry);
	if (!(e->flags & CATALOG_KEPT) == !kept || (e->flags & CATALOG_GHOST))
		return;
	if (e->flags & CATALOG_FLASH)
		account_sub(store, e);
	e->flags ^= CATALOG_KEPT;
	if (e->flags & CATALOG_FLASH)
		account_add(store, e);
}

void slot_release(cairn *store, uint32_t slot)
{
	struct memory_slot *s = memory_slot(store->memory, slot);
	check(s->refs > 0);
	s->refs--;
	if (!s->refs && (!s->entry || s->state == MEMORY_FAILED))
		memory_free(store->memory, slot);
	store_changed(store);
}

/* Takes the slot away from its entry; what becomes of the entry is the caller's. */
static void slot_detach(cairn *store, struct catalog_entry *e, uint32_t reason)
{
	uint32_t slot = e->slot;
	struct memory_slot *s = memory_slot(store->memory, slot);
	if (s->state == MEMORY_READY) {
		entry_event(store, e, CAIRN_EVENT_REMOVED, CAIRN_TIER_MEMORY, reason);
		if (reason == CAIRN_WHY_EVICTED) {
			store->stat.tier[CAIRN_TIER_MEMORY].evicted_parts++;
			store->stat.tier[CAIRN_TIER_MEMORY].evicted_bytes += e->length;
			struct cairn_tenant_stat *own = &store->tenants[s->tenant].stat;
			own->evicted_parts[CAIRN_TIER_MEMORY]++;
			own->evicted_bytes[CAIRN_TIER_MEMORY] += e->length;
		}
	}
	e->slot = 0;
	s->entry = 0;
	if (!s->refs)
		memory_free(store->memory, slot);
}

void entry_memory_clear(cairn *store, uint32_t entry, uint32_t reason)
{
	struct catalog_entry *e = catalog_at(store->catalog, entry);
	slot_detach(store, e, reason);
	if (!(e->flags & CATALOG_FLASH))
		entry_gone(store, entry, CAIRN_TIER_MEMORY, reason);
}

void entry_abandon(cairn *store, uint32_t entry)
{
	struct catalog_entry *e = catalog_at(store->catalog, entry);
	check(e->slot && memory_slot(store->memory, e->slot)->state == MEMORY_FILLING && !(e->flags & CATALOG_FLASH));
	slot_detach(store, e, CAIRN_WHY_NONE);
	store->sweep_wanted |= e->children > 0;
	e->holds = 0;
	catalog_remove(store->catalog, entry);
}

void entry_gone(cairn *store, uint32_t entry, uint32_t tier, uint32_t reason)
{
	struct catalog_entry *e = catalog_at(store->catalog, entry);
	check(!e->slot && !(e->flags & CATALOG_FLASH));
	struct catalog_memory memory = {
	    .reason = reason,
	    .tier = tier,
	    .uses = e->uses,
	    .when_s = clock_wall_s(store->clock),
	};
	catalog_remember(store->catalog, print_of(store, e), &memory);
	if (reason == CAIRN_WHY_ORPHAN)
		store->stat.orphan_parts++;
	events_gone(store, e);
	/* A block without a part that its space requires is none: the rest goes too. */
	const struct cairn_space *space = space_of(store, e);
	uint32_t number = e->space, part = e->part;
	uint8_t prefix[16];
	memcpy(prefix, e->prefix, 16);
	store->sweep_wanted |= e->children > 0;
	e->holds = 0;
	catalog_remove(store->catalog, entry);
	if (!space->described || !(space->space.required_parts >> part & 1) || reason == CAIRN_WHY_DROPPED)
		return;
	for (uint32_t other = 0; other < space->space.desc.nparts; other++) {
		uint32_t rest = other == part ? 0 : catalog_find(store->catalog, number, prefix, other);
		if (!rest || (catalog_at(store->catalog, rest)->flags & CATALOG_GHOST))
			continue;
		struct catalog_entry *r = catalog_at(store->catalog, rest);
		if (r->slot && memory_slot(store->memory, r->slot)->state == MEMORY_FILLING)
			continue; /* a rank's part on its way in: the block is being put again */
		entry_remove(store, rest, reason);
		return; /* the removal of `rest` went on with the others */
	}
}

void entry_remove(cairn *store, uint32_t entry, uint32_t reason)
{
	struct catalog_entry *e = catalog_at(store->catalog, entry);
	uint32_t tier = e->flags & CATALOG_FLASH ? CAIRN_TIER_FLASH : CAIRN_TIER_MEMORY;
	if (e->flags & CATALOG_GHOST)
		return;
	if (e->flags & CATALOG_FLASH)
		flash_forget(store, e, reason);
	if (e->slot)
		slot_detach(store, e, reason);
	entry_gone(store, entry, tier, reason);
}

/* ---- room -------------------------------------------------------------------------------------------------------- */

int entry_held(cairn *store, uint32_t entry)
{
	const struct catalog_entry *e = catalog_at(store->catalog, entry);
	if (e->holds)
		return 1;
	const struct cairn_space *space = space_of(store, e);
	if (!space->described || !(space->space.required_parts >> e->part & 1))
		return 0;
	for (uint32_t part = 0; part < space->space.desc.nparts; part++) {
		uint32_t rest = part == e->part ? 0 : catalog_find(store->catalog, e->space, e->prefix, part);
		if (rest && catalog_at(store->catalog, rest)->holds)
			return 1;
	}
	return 0;
}

/* The only copy of what a match was told of, or of a part of it. */
int slot_held(void *arg, uint32_t slot)
{
	cairn *store = arg;
	uint32_t entry = memory_slot(store->memory, slot)->entry;
	return !entry || (!(catalog_at(store->catalog, entry)->flags & CATALOG_FLASH) && entry_held(store, entry));
}

uint32_t slot_take(cairn *store, uint32_t tenant, uint32_t length, const uint32_t *older_than)
{
	(void)watch_now(store);
	down_ahead(store, tenant, 0);
	if (length > memory_part_max(store->memory))
		return 0;
	for (;;) {
		uint32_t slot = memory_take(store->memory, tenant, length);
		if (slot)
			return slot;
		down_ahead(store, tenant, 1);
		/* What is reserved for it comes from others; else its own go first, and over its quota nobody else's. */
		int over = memory_over(store->memory, tenant, length);
		uint32_t victim = !over && memory_owed(store->memory, tenant)
		                      ? memory_victim_elsewhere(store->memory, tenant)
		                      : 0;
		if (!victim)
			victim = memory_victim(store->memory, tenant);
		if (!victim && !over)
			victim = memory_victim_elsewhere(store->memory, tenant);
		if (!victim || (older_than && (int32_t)(memory_slot(store->memory, victim)->used - *older_than) >= 0))
			return 0;
		uint32_t entry = memory_slot(store->memory, victim)->entry;
		const struct catalog_entry *e = catalog_at(store->catalog, entry);
		if (down_budgeted(store) && !(e->flags & CATALOG_FLASH)) {
			store->stat.flash_refused_parts++;
			store->stat.flash_refused_bytes += e->length;
		}
		entry_memory_clear(store, entry, CAIRN_WHY_EVICTED);
	}
}

/* The catalog is full: the first old part of flash, or of memory, that nobody needs goes. What is reserved for others
 * is passed by. */
static int catalog_make_room(cairn *store, uint32_t space)
{
	enum { LOOKED = 256, PASSED = 16384 };
	uint32_t entry = store->sweep_at, oldest = 0, oldest_age = 0, tenant = store->spaces[space - 1]->tenant;
	for (int looked = 0, passed = 0; looked < LOOKED && passed < PASSED; looked++) {
		entry = catalog_next(store->catalog, entry);
		if (!entry)
			entry = catalog_next(store->catalog, 0);
		if (!entry)
			return 0;
		store->sweep_at = entry;
		const struct catalog_entry *e = catalog_at(store->catalog, entry);
		if (tenant_entry_guarded(store, e, tenant)) {
			looked--;
			passed++;
			continue;
		}
		if ((e->flags & (CATALOG_GHOST | CATALOG_KEPT | CATALOG_MANIFEST)) || e->holds ||
		    (e->slot && memory_slot(store->memory, e->slot)->refs))
			continue;
		uint32_t age = evict_age(e->used, (uint16_t)store->tick) + (e->children ? 0 : 1);
		if (!oldest || age > oldest_age) {
			oldest = entry;
			oldest_age = age;
		}
	}
	if (oldest)
		entry_remove(store, oldest, CAIRN_WHY_EVICTED);
	return oldest != 0;
}

uint32_t entry_insert(cairn *store, uint32_t space, const uint8_t prefix[16], uint32_t part)
{
	for (int tries = 0; tries < 64; tries++) {
		uint32_t entry = catalog_insert(store->catalog, space, prefix, part);
		if (entry)
			return entry;
		if (!catalog_make_room(store, space))
			return 0;
	}
	return 0;
}

void slot_touch(cairn *store, uint32_t slot)
{
	const struct catalog_entry *e = catalog_at(store->catalog, memory_slot(store->memory, slot)->entry);
	(void)watch_now(store);
	memory_touch(store->memory, slot, e->flags & CATALOG_CLOSED ? MEMORY_CLOSED : class_of(e));
}

void slot_recent(cairn *store, uint32_t slot)
{
	const struct memory_slot *s = memory_slot(store->memory, slot);
	const struct catalog_entry *e = catalog_at(store->catalog, s->entry);
	uint32_t parent = e->parent ? catalog_at(store->catalog, e->parent)->slot : 0;
	uint32_t list = e->flags & CATALOG_CLOSED ? MEMORY_CLOSED : class_of(e);
	const struct memory_slot *p = parent ? memory_slot(store->memory, parent) : NULL;
	if (p && p->state == MEMORY_READY && p->tenant == s->tenant && p->list == list)
		memory_touch_behind(store->memory, slot, parent); /* the end of a chain goes before its head */
	else
		slot_touch(store, slot);
}

/* ---- orphans ----------------------------------------------------------------------------------------------------- */

static int sweep_one(cairn *store, uint32_t entry)
{
	const struct catalog_entry *e = catalog_at(store->catalog, entry);
	if ((e->flags & (CATALOG_GHOST | CATALOG_KEPT)) || e->holds || !catalog_orphan(store->catalog, entry))
		return 0;
	if (e->slot && (memory_slot(store->memory, e->slot)->refs || memory_slot(store->memory, e->slot)->dirty))
		return 0;
	/* The parent's block may live on in another part of it. */
	const struct catalog_entry *p = catalog_at(store->catalog, e->parent);
	uint32_t other = catalog_find_any(store->catalog, p->space, p->prefix);
	if (other && !(catalog_at(store->catalog, other)->flags & CATALOG_GHOST)) {
		catalog_set_parent(store->catalog, entry, other);
		return 0;
	}
	entry_remove(store, entry, CAIRN_WHY_ORPHAN);
	return 1;
}

int entry_sweep(cairn *store)
{
	if (!store->sweep_wanted || !store->kept_known || store->device_away) /* heads may lie on the device that is away */
		return 0;
	for (int i = 0; i < STORE_SWEEP; i++) {
		uint32_t entry = catalog_next(store->catalog, store->sweep_at);
		if (!entry) { /* a whole round: another one while it found something */
			store->sweep_wanted = store->sweep_found;
			store->sweep_found = 0;
			store->sweep_at = 0;
			return store->sweep_wanted;
		}
		store->sweep_at = entry;
		store->sweep_found |= (uint32_t)sweep_one(store, entry);
	}
	return 1;
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

void entry_verify(cairn *store)
{
	uint64_t live_bytes[STORE_DEVICES] = {0}, live_parts[STORE_DEVICES] = {0}, in_spaces = 0, in_devices = 0;
	catalog_verify(store->catalog);
	memory_check(store->memory);
	count_verify(store);
	for (uint32_t entry = catalog_next(store->catalog, 0); entry; entry = catalog_next(store->catalog, entry)) {
		const struct catalog_entry *e = catalog_at(store->catalog, entry);
		int ghost = (e->flags & CATALOG_GHOST) != 0;
		check(ghost ? !e->slot && !(e->flags & CATALOG_FLASH) : e->slot || (e->flags & CATALOG_FLASH));
		if (e->slot) {
			const struct memory_slot *s = memory_slot(store->memory, e->slot);
			check(s->entry == entry);
			check(s->state == MEMORY_READY || s->refs > 0);
		}
		if (e->flags & CATALOG_FLASH) {
			live_bytes[e->device] += e->length;
			live_parts[e->device]++;
		}
	}
	for (uint32_t d = 0; d < store->ndevices; d++) {
		const struct device *device = &store->devices[d];
		check(device->live_bytes == live_bytes[d] && device->live_parts == live_parts[d]);
		uint64_t bytes = 0;
		for (uint32_t s = 0; device->accounts && s < device->nsegments; s++)
			bytes += device->accounts[s].live_bytes;
		check(bytes == device->live_bytes);
		in_devices += bytes;
	}
	for (uint32_t i = 0; i < store->nspaces; i++)
		in_spaces += store->spaces[i]->flash_bytes;
	check(in_spaces == in_devices);
}
