/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the flash tier tells the store and asks of it (struct tier_host), and what the store gives it for a checkpoint.
 *
 * Threads: called by the loop thread of a device (the opening or closing thread then); each call takes the store's
 * lock.
 * Invariant: nothing is published under a key whose birth is not the one that was written: a drop, or a newer part,
 * came
 * in between.
 */
#include <string.h>

#include "base/check.h"
#include "store/store.h"

static uint32_t part_find(cairn *store, const struct fmt_entry *entry)
{
	const struct cairn_space *space = store_space_by_id(store, entry->space, 0);
	return space ? catalog_find(store->catalog, space->number, entry->key, entry->part) : 0;
}

/* The entry of exactly this part at this place; 0: it is not there any more. */
static uint32_t part_at(cairn *store, uint32_t device, const struct fmt_entry *entry, uint32_t page)
{
	uint32_t found = part_find(store, entry);
	if (!found)
		return 0;
	const struct catalog_entry *e = catalog_at(store->catalog, found);
	return (e->flags & CATALOG_FLASH) && e->device == device && e->page == page && catalog_birth(e) == entry->birth
	           ? found
	           : 0;
}

static int host_stored(void *arg, uint32_t device, const struct fmt_entry *entry, uint32_t page)
{
	cairn *store = arg;
	pthread_mutex_lock(&store->lock);
	uint32_t found = part_find(store, entry);
	int wanted = 0;
	if (found) {
		struct catalog_entry *e = catalog_at(store->catalog, found);
		wanted = !(e->flags & (CATALOG_GHOST | CATALOG_FLASH)) && catalog_birth(e) == entry->birth;
	}
	if (wanted) {
		entry_flash_set(store, found, device, page);
		store->stat.tier[CAIRN_TIER_FLASH].written_parts++;
		store->stat.tier[CAIRN_TIER_FLASH].written_bytes += entry->raw_length;
	}
	pthread_mutex_unlock(&store->lock);
	return wanted;
}

static void host_durable(void *arg, uint32_t device, const struct fmt_entry *entry, uint32_t page)
{
	cairn *store = arg;
	pthread_mutex_lock(&store->lock);
	uint32_t found = part_at(store, device, entry, page);
	if (found)
		catalog_at(store->catalog, found)->flags |= CATALOG_DURABLE;
	pthread_mutex_unlock(&store->lock);
}

static void host_removed(void *arg, uint32_t device, const struct fmt_entry *entry, uint32_t page, uint32_t reason)
{
	cairn *store = arg;
	pthread_mutex_lock(&store->lock);
	uint32_t found = part_at(store, device, entry, page);
	if (found)
		entry_flash_clear(store, found, reason);
	if (found && reason == CAIRN_WHY_DEVICE)
		store->sync_error = CAIRN_E_IO;
	if (reason == CAIRN_WHY_DEVICE)
		store->devices[device].avoid_until_ns = clock_mono_ns(store->clock) + STORE_AVOID_NS;
	store_changed(store);
	pthread_mutex_unlock(&store->lock);
}

static uint32_t device_mean_age(const cairn *store, const struct device *device)
{
	uint64_t units = device->live_bytes / 1024 + device->live_parts;
	uint64_t mean = units ? device->use_sum / units : store->tick;
	uint64_t age = store->tick > mean ? store->tick - mean : 0;
	return age < EVICT_TICKS_MAX ? (uint32_t)age : EVICT_TICKS_MAX;
}

static int host_judge(void *arg, uint32_t device, const struct fmt_entry *entry, uint32_t page,
                      enum evict_verdict *ret_verdict)
{
	cairn *store = arg;
	pthread_mutex_lock(&store->lock);
	uint32_t found = part_at(store, device, entry, page);
	if (found) {
		const struct catalog_entry *e = catalog_at(store->catalog, found);
		int held = entry_held(store, found);
		struct evict_part part = {
			.age = evict_age(e->used, (uint16_t)store->tick),
			.used = (e->flags & CATALOG_USED) != 0,
			.kept = (e->flags & (CATALOG_KEPT | CATALOG_MANIFEST)) != 0 || held,
			.closed = (e->flags & CATALOG_CLOSED) != 0,
			.orphan =
				!held && !(e->flags & CATALOG_KEPT) && !store->device_away && catalog_orphan(store->catalog, found),
			.bytes = e->length,
		};
		*ret_verdict = evict_part_verdict(&part, device_mean_age(store, &store->devices[device]));
	}
	pthread_mutex_unlock(&store->lock);
	return found != 0;
}

static int host_place(void *arg, uint32_t device, const struct fmt_entry *entry, uint32_t *ret_page)
{
	cairn *store = arg;
	pthread_mutex_lock(&store->lock);
	uint32_t found = part_find(store, entry);
	if (found) {
		const struct catalog_entry *e = catalog_at(store->catalog, found);
		if ((e->flags & CATALOG_FLASH) && e->device == device && catalog_birth(e) == entry->birth)
			*ret_page = e->page;
		else
			found = 0;
	}
	pthread_mutex_unlock(&store->lock);
	return found != 0;
}

static enum tier_moved_result host_moved(void *arg, uint32_t device, const struct fmt_entry *entry, uint32_t old_page,
                                         uint32_t page)
{
	cairn *store = arg;
	pthread_mutex_lock(&store->lock);
	uint32_t found = part_at(store, device, entry, old_page);
	if (found)
		entry_flash_move(store, found, page);
	admit_budget_charge(&store->write_budget, entry->raw_length);
	pthread_mutex_unlock(&store->lock);
	return found ? TIER_MOVED : TIER_GONE;
}

static void host_owned(void *arg, uint32_t device, uint32_t segment, const uint8_t *tenant)
{
	cairn *store = arg;
	pthread_mutex_lock(&store->lock);
	tenant_own(store, device, segment, tenant);
	pthread_mutex_unlock(&store->lock);
}

static int host_may_own(void *arg, uint32_t device, const uint8_t *tenant)
{
	cairn *store = arg;
	pthread_mutex_lock(&store->lock);
	int full = tenant_flash_full(store, device, tenant_find(store, tenant));
	pthread_mutex_unlock(&store->lock);
	return !full;
}

static void host_shut(void *arg, uint32_t device, int shut, int hung)
{
	cairn *store = arg;
	pthread_mutex_lock(&store->lock);
	store->shut = (store->shut & ~(1u << device)) | (uint32_t)shut << device;
	store->hung = (store->hung & ~(1u << device)) | (uint32_t)hung << device;
	store_changed(store); /* who waits for it waits no more */
	pthread_mutex_unlock(&store->lock);
}

/* Whether a segment may be freed for `tenant`: not what is reserved for others; with `own` only its own. */
static int may_free(const cairn *store, uint32_t device, uint32_t segment, const uint8_t *tenant, int own)
{
	const struct owner *owner = &store->devices[device].owners[segment];
	if (tenant && !memcmp(owner->digest, tenant, 16))
		return 1;
	return !own && !tenant_flash_guarded(store, device, owner->tenant ? owner->tenant - 1u : TENANT_NONE);
}

static long host_choose(void *arg, uint32_t device, const uint8_t *tenant, int own, const uint32_t *segments, size_t n)
{
	cairn *store = arg;
	pthread_mutex_lock(&store->lock);
	const struct device *d = &store->devices[device];
	uint64_t segment_bytes = (uint64_t)d->pages_per_segment * FMT_PAGE;
	long best = -1;
	double best_index = 0, best_age = 0;
	for (size_t i = 0; i < n && store->kept_known; i++) {
		const struct account *account = &d->accounts[segments[i]];
		if (account->kept_bytes > segment_bytes / 8 * 7 || !may_free(store, device, segments[i], tenant, own))
			continue; /* freeing it would free nothing, or take what is another's */
		uint64_t units = account->live_bytes / 1024 + account->live_parts;
		uint64_t newest = units * store->tick > account->use_sum ? units * store->tick : account->use_sum;
		struct evict_segment segment = {
		    .live_bytes = account->live_bytes,
		    .age_sum = (newest - account->use_sum) * 1024,
		    .kept_bytes = account->kept_bytes,
		    .segment_bytes = segment_bytes,
		};
		double index = evict_segment_index(&segment);
		double age = units ? (double)(newest - account->use_sum) / (double)units : EVICT_TICKS_MAX;
		/* Of equally recent ones the youngest: where one chain fills them all, its end goes before its head. */
		int equal = best >= 0 && account->live_parts && age < best_age + 1 && age > best_age - 1 &&
		            index < best_index * 1.25;
		if (best < 0 || index < best_index || equal) {
			best = (long)i;
			best_index = equal && best_index < index ? best_index : index;
			best_age = age;
		}
	}
	pthread_mutex_unlock(&store->lock);
	return best;
}

static void host_lost(void *arg, uint32_t device, uint32_t from, uint32_t to, uint32_t reason)
{
	cairn *store = arg;
	pthread_mutex_lock(&store->lock);
	const struct device *d = &store->devices[device];
	uint64_t live = 0; /* nearly always none: do not walk the catalog then */
	for (uint32_t s = from / d->pages_per_segment; s < d->nsegments && s * d->pages_per_segment < to; s++)
		live += d->accounts[s].live_parts;
	for (uint32_t entry = live ? catalog_next(store->catalog, 0) : 0; entry;
	     entry = catalog_next(store->catalog, entry)) {
		const struct catalog_entry *e = catalog_at(store->catalog, entry);
		if ((e->flags & CATALOG_FLASH) && e->device == device && e->page >= from && e->page < to)
			entry_flash_clear(store, entry, reason);
	}
	pthread_mutex_unlock(&store->lock);
}

static void host_coming(void *arg, const struct fmt_entry *entries, size_t n)
{
	cairn *store = arg;
	cairn_key keys[CATALOG_WARM];
	size_t same = 0;
	pthread_mutex_lock(&store->lock);
	const struct cairn_space *space = n ? store_space_by_id(store, entries[0].space, 0) : NULL;
	for (; space && same < n && same < CATALOG_WARM && !memcmp(entries[same].space, space->id, 32); same++)
		memcpy(keys[same].bytes, entries[same].key, 16);
	if (space)
		catalog_warm(store->catalog, space->number, keys, same);
	pthread_mutex_unlock(&store->lock);
}

/* A parent that was not found yet, or is no more: a ghost until it comes. `found`: its child, an entry after it if the
 * two were told one after the other. */
static uint32_t found_parent(cairn *store, uint32_t space, const uint8_t prefix[16], uint32_t found)
{
	static const uint8_t none[16];
	if (!memcmp(prefix, none, 16))
		return 0;
	const struct catalog_entry *before = catalog_guess(store->catalog, found - 1, 1, space, prefix);
	if (before && !(before->flags & CATALOG_GHOST))
		return found - 1;
	uint32_t parent = catalog_find_any(store->catalog, space, prefix);
	return parent ? parent : catalog_insert_ghost(store->catalog, space, prefix);
}

static void host_found(void *arg, uint32_t device, const struct fmt_entry *entry, uint32_t page)
{
	cairn *store = arg;
	pthread_mutex_lock(&store->lock);
	struct cairn_space *space = store_space_by_id(store, entry->space, 1);
	uint32_t found = space ? catalog_find(store->catalog, space->number, entry->key, entry->part) : 0;
	if (found && !(catalog_at(store->catalog, found)->flags & CATALOG_GHOST)) {
		/* Two copies: one was carried over, or a newer part was put after the old one was lost. */
		if (catalog_birth(catalog_at(store->catalog, found)) >= entry->birth)
			goto out;
		entry_flash_forget(store, found);
	} else if (space) {
		/* Evicted parts come back too as long as nothing was written over them: a session must not go for their sake.
		 * */
		found = entry->flags & FMT_PART_MANIFEST
		            ? entry_insert(store, space->number, entry->key, entry->part)
		            : catalog_insert(store->catalog, space->number, entry->key, entry->part);
	}
	if (!found) {
		store->stat.tier[CAIRN_TIER_FLASH].evicted_parts++; /* the catalog's budget is smaller than it was */
		store->stat.tier[CAIRN_TIER_FLASH].evicted_bytes += entry->raw_length;
		goto out;
	}
	struct catalog_entry *e = catalog_at(store->catalog, found);
	uint64_t check_bytes;
	memcpy(&check_bytes, entry->stored_check, 8);
	e->flags = (uint8_t)((entry->flags & FMT_PART_TAIL ? CATALOG_TAIL : 0) |
	                     (entry->flags & FMT_PART_MANIFEST ? CATALOG_MANIFEST : 0));
	if (entry->flags & FMT_PART_MANIFEST)
		space->manifest = 1;
	catalog_set_check(e, check_bytes);
	catalog_set_birth(e, entry->birth);
	e->length = entry->raw_length;
	e->used = (uint16_t)store->tick;
	entry_flash_set(store, found, device, page);
	catalog_at(store->catalog, found)->flags |= CATALOG_DURABLE;
	catalog_set_parent(store->catalog, found, found_parent(store, space->number, entry->parent, found));
out:
	pthread_mutex_unlock(&store->lock);
}

const struct tier_host store_host = {
	.stored = host_stored,
	.durable = host_durable,
	.removed = host_removed,
	.judge = host_judge,
	.place = host_place,
	.moved = host_moved,
	.choose = host_choose,
	.owned = host_owned,
	.may_own = host_may_own,
	.shut = host_shut,
	.lost = host_lost,
	.found = host_found,
	.coming = host_coming,
};

/* ---- checkpoint -------------------------------------------------------------------------------------------------- */

static uint64_t checkpoint_count(void *arg, uint32_t device)
{
	const cairn *store = arg;
	return store->devices[device].live_parts;
}

static int checkpoint_next(void *arg, uint32_t device, uint32_t *cursor, struct fmt_entry *ret_entry,
                           uint32_t *ret_page)
{
	cairn *store = arg;
	while ((*cursor = catalog_next(store->catalog, *cursor))) {
		const struct catalog_entry *e = catalog_at(store->catalog, *cursor);
		if (!(e->flags & CATALOG_FLASH) || e->device != device)
			continue;
		memset(ret_entry, 0, sizeof(*ret_entry));
		memcpy(ret_entry->key, e->prefix, 16);
		memcpy(ret_entry->space, store->spaces[e->space - 1]->id, 32);
		if (e->parent)
			memcpy(ret_entry->parent, catalog_at(store->catalog, e->parent)->prefix, 16);
		ret_entry->part = e->part;
		ret_entry->flags = (uint8_t)((e->flags & CATALOG_TAIL ? FMT_PART_TAIL : 0) |
		                             (e->flags & CATALOG_MANIFEST ? FMT_PART_MANIFEST : 0));
		ret_entry->raw_length = ret_entry->stored_length = e->length;
		ret_entry->birth = catalog_birth(e);
		uint64_t check_bytes = catalog_check_of(e);
		memcpy(ret_entry->stored_check, &check_bytes, 8);
		*ret_page = e->page;
		return 1;
	}
	return 0;
}

const struct flash_checkpoint store_checkpoint = {
	.count = checkpoint_count,
	.next = checkpoint_next,
};
