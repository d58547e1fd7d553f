/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Putting parts: a copy into the memory tier, checked on its way in, then on to flash.
 *
 * A part is visible in memory once its copy is whole; its write to flash is queued at once, and with durability `flash`
 * the call waits for the flush that covers it. Of a key that is there already the first bytes stay.
 *
 * Threads: the caller's. Memory: none; batches go through in steps of STORE_BATCH items.
 * Invariant: a slot is READY only after its last byte was copied and hashed.
 */
#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "base/digest.h"
#include "base/err.h"
#include "fmt/gone.h"
#include "store/remote.h"
#include "store/store.h"

/* ---- buffers ----------------------------------------------------------------------------------------------------- */

void *buffer_address(const struct cairn_buf *buf)
{
	return buf->region ? buf->region->address + buf->offset : (void *)(uintptr_t)buf->offset;
}

int buffers_check(const struct cairn_item *item, uint64_t *ret_bytes)
{
	uint64_t bytes = 0;
	if (item->nbufs && !item->bufs)
		return CAIRN_E_INVAL;
	for (uint32_t i = 0; i < item->nbufs; i++) {
		const struct cairn_buf *buf = &item->bufs[i];
		if (buf->region && (buf->offset > buf->region->length || buf->length > buf->region->length - buf->offset))
			return CAIRN_E_INVAL;
		if (!buf->region && !buf->offset && buf->length)
			return CAIRN_E_INVAL;
		if (bytes + buf->length < bytes)
			return CAIRN_E_INVAL;
		bytes += buf->length;
	}
	*ret_bytes = bytes;
	return 0;
}

void buffers_fence(const struct cairn_item *item)
{
	for (uint32_t i = 0; i < item->nbufs; i++)
		if (item->bufs[i].region && item->bufs[i].region->fence &&
		    (i == 0 || item->bufs[i].region != item->bufs[i - 1].region))
			(void)item->bufs[i].region->fence(item->bufs[i].region->fence_arg);
}

void buffers_use(const struct cairn_item *items, size_t n, int delta)
{
	for (size_t i = 0; i < n; i++)
		for (uint32_t b = 0; items[i].bufs && b < items[i].nbufs; b++)
			if (items[i].bufs[b].region)
				__atomic_fetch_add(&items[i].bufs[b].region->uses, (uint32_t)delta, __ATOMIC_ACQ_REL);
}

/* The checksum of what is to be put. 0, or the item's status. */
static int32_t source_hash(const struct store_call *call, const struct cairn_item *item, uint64_t *ret_hash)
{
	struct digest_xxh xxh;
	if (call->source)
		return call->source->take(call->source->arg, item, NULL, ret_hash);
	digest_xxh_init(&xxh, 0);
	for (uint32_t i = 0; i < item->nbufs; i++)
		if (item->bufs[i].length)
			digest_xxh_add(&xxh, buffer_address(&item->bufs[i]), item->bufs[i].length);
	*ret_hash = digest_xxh_done(&xxh);
	return 0;
}

/* ---- one step of a batch ----------------------------------------------------------------------------------------- */

enum put_step {
	PUT_DONE = 0,   /* its status is final */
	PUT_COPY = 1,   /* a slot waits for its bytes */
	PUT_STORED = 2, /* in memory (or was there already): durability is next */
};

struct put_work {
	cairn *store;
	const struct cairn_space *space;
	struct cairn_item *items;
	size_t n;
	const struct store_call *call;
	uint8_t step[STORE_BATCH];
	uint8_t skip[STORE_BATCH]; /* flash was too slow for too long: memory only */
	uint32_t slot[STORE_BATCH];
	uint64_t birth[STORE_BATCH];
	int32_t write[STORE_BATCH]; /* result of the write to flash; PUT_PENDING while it is on its way */
	uint64_t copying_bytes;     /* of slots that wait for their bytes: dirty as soon as they have them */
	int stuck;                  /* flash was waited for once in this call: not again for each part */
};
enum { PUT_PENDING = INT32_MAX };

static uint64_t group_bytes(const struct cairn_space *space, uint32_t group)
{
	const struct cairn_space_desc *desc = &space->space.desc;
	return desc->groups ? desc->groups[group].block_bytes : desc->block_bytes;
}

static int32_t item_check(const struct put_work *work, struct cairn_item *item, uint64_t *ret_bytes)
{
	const struct cairn_space *space = work->space;
	if (buffers_check(item, ret_bytes))
		return err_set(CAIRN_E_INVAL, "put: a buffer of the item lies outside of its region");
	if (*ret_bytes < CAIRN_PART_MIN_BYTES || *ret_bytes > work->store->part_max)
		return err_set(CAIRN_E_SIZE, "put: a part of %llu bytes; this store takes 1 to %u (smaller blocks, or a larger "
		               "memory or segment)", (unsigned long long)*ret_bytes, work->store->part_max);
	if (work->call->manifest)
		return 0;
	uint32_t nparts = space->space.desc.nparts ? space->space.desc.nparts : 1;
	if (item->group >= space->space.ngroups || item->part >= nparts)
		return err_set(CAIRN_E_INVAL, "put: group %u part %u; the space has %u groups and %u parts", item->group,
		               item->part, space->space.ngroups, nparts);
	uint64_t declared = group_bytes(space, item->group);
	if (declared && !(item->flags & CAIRN_ITEM_TAIL) && *ret_bytes != declared)
		return err_set(CAIRN_E_SIZE, "put: a block of %llu bytes; the space declares %llu",
		               (unsigned long long)*ret_bytes, (unsigned long long)declared);
	return 0;
}

/* Whether an entry is there for a reader now: in memory, whole, or in flash. */
static int visible(cairn *store, const struct catalog_entry *e)
{
	return (e->flags & CATALOG_FLASH) || (e->slot && memory_slot(store->memory, e->slot)->state == MEMORY_READY);
}

/* The key exists. Same length keeps the first bytes; other bytes are counted. */
static int32_t put_existing(struct put_work *work, struct cairn_item *item, uint32_t entry, uint64_t bytes)
{
	cairn *store = work->store;
	const struct catalog_entry *e = catalog_at(store->catalog, entry);
	work->birth[item - work->items] = catalog_birth(e);
	if (e->length != bytes) {
		item->ret_bytes = e->length;
		return err_set(CAIRN_E_CONFLICT, "put: the key exists with %u bytes; %llu were given", e->length,
		               (unsigned long long)bytes);
	}
	uint64_t have = catalog_check_of(e);
	store->stat.put_exists++;
	if (!e->holds) { /* computed once more: the prompt came again, and nobody has counted that */
		entry_count(store, entry);
		entry_touch(store, entry, 1);
		if (e->slot && memory_slot(store->memory, e->slot)->state == MEMORY_READY)
			slot_recent(store, e->slot);
	}
	pthread_mutex_unlock(&store->lock);
	uint64_t hash = 0;
	int32_t status = source_hash(work->call, item, &hash);
	uint64_t mine =
		segment_stored_check(item->key.bytes, work->space->id, item->part, (uint32_t)bytes, (uint32_t)bytes, 0, hash);
	pthread_mutex_lock(&store->lock);
	if (status)
		return status;
	item->ret_check = hash;
	if (mine != have)
		store->stat.put_conflicts++;
	return CAIRN_EXISTED;
}

static uint32_t parent_of(struct put_work *work, size_t index, int32_t *ret_status)
{
	const struct cairn_item *item = &work->items[index];
	*ret_status = 0;
	if (!item->parent)
		return 0;
	for (uint32_t g = 0; g < work->space->space.ngroups; g++)
		if (!memcmp(item->parent->bytes, work->space->space.roots[g], 32))
			return 0;
	uint32_t parent = catalog_find_any(work->store->catalog, work->space->number, item->parent->bytes);
	if (parent && !(catalog_at(work->store->catalog, parent)->flags & CATALOG_GHOST))
		return parent;
	/* A block whose head was refused in this very batch would be a chain with a hole. */
	for (size_t i = index; i-- > 0;)
		if (work->items[i].status < 0 && work->items[i].status != CAIRN_E_CONFLICT &&
		    !memcmp(work->items[i].key.bytes, item->parent->bytes, 32)) {
			*ret_status = work->items[i].status;
			return 0;
		}
	return UINT32_MAX; /* unknown: nobody can match it; it goes first */
}

static int holds_copies(const struct put_work *work, size_t index)
{
	for (size_t i = 0; i < index; i++)
		if (work->step[i] == PUT_COPY)
			return 1;
	return 0;
}

static int32_t put_begin(struct put_work *work, size_t index)
{
	cairn *store = work->store;
	struct cairn_item *item = &work->items[index];
	uint64_t bytes;
	int32_t status = item_check(work, item, &bytes);
	if (status)
		return status;
	item->ret_bytes = bytes;
	uint32_t entry;
	for (;;) { /* one in flight is awaited; if its writer fails, ours goes on */
		entry = catalog_find(store->catalog, work->space->number, item->key.bytes, item->part);
		if (entry && (catalog_at(store->catalog, entry)->flags & CATALOG_GHOST))
			entry = 0;
		if (!entry || visible(store, catalog_at(store->catalog, entry)))
			break;
		if (holds_copies(work, index)) /* two batches must not wait for each other's keys (or one for its own) */
			return CAIRN_E_BUSY;
		if (store_wait(store, work->call->deadline_ns))
			return err_set(CAIRN_E_LATE, "put: another writer of the key did not end in time");
	}
	if (entry)
		return put_existing(work, item, entry, bytes);
	uint32_t parent = parent_of(work, index, &status);
	if (status)
		return status;
	/* What waits for flash may take half of memory; a put then waits a while, and goes without flash after it. */
	uint64_t patience = clock_mono_ns(store->clock) + 1000000000ull;
	if (work->call->deadline_ns < patience || work->call->durability == CAIRN_DURABLE_FLASH)
		patience = work->call->deadline_ns;
	while ((store->dirty_bytes + work->copying_bytes + bytes > store->dirty_max ||
	        !tenant_may_dirty(store, work->space->tenant, work->copying_bytes + bytes)) &&
	       store_has_flash(store) && (store->dirty_bytes || work->copying_bytes)) {
		if (work->copying_bytes)
			return CAIRN_E_BUSY; /* they are let go first */
		if (work->stuck || store_wait(store, patience)) {
			work->skip[index] = 1;
			work->stuck = work->call->durability != CAIRN_DURABLE_FLASH;
			break;
		}
	}
	uint32_t slot;
	while (!(slot = slot_take(store, work->space->tenant, (uint32_t)bytes, NULL))) {
		if (holds_copies(work, index))
			return CAIRN_E_BUSY; /* what we hold ourselves must be let go first: try again after copying */
		if (tenant_never(store, work->space->tenant, bytes) || store_wait(store, patience))
			return tenant_refuse(store, work->space->tenant, bytes, CAIRN_E_BUSY, "put");
	}
	/* The lock may have been let go: somebody else may have put it. */
	entry = catalog_find(store->catalog, work->space->number, item->key.bytes, item->part);
	if (entry && !(catalog_at(store->catalog, entry)->flags & CATALOG_GHOST)) {
		memory_slot(store->memory, slot)->entry = 0;
		slot_release(store, slot);
		return put_begin(work, index);
	}
	entry = entry_insert(store, work->space->number, item->key.bytes, item->part);
	if (!entry) {
		slot_release(store, slot);
		return err_set(CAIRN_E_FULL, "put: the catalog is full and nothing in it may be evicted: raise catalog_bytes");
	}
	parent = parent_of(work, index, &status); /* eviction may have taken it */
	struct catalog_entry *e = catalog_at(store->catalog, entry);
	struct memory_slot *s = memory_slot(store->memory, slot);
	e->slot = slot;
	e->length = (uint32_t)bytes;
	e->flags = (uint8_t)((item->flags & CAIRN_ITEM_TAIL ? CATALOG_TAIL : 0) |
	                     (work->call->manifest ? CATALOG_MANIFEST : 0) | (parent == UINT32_MAX ? CATALOG_CLOSED : 0));
	e->used = (uint16_t)store->tick;
	catalog_set_birth(e, store->next_birth++);
	s->entry = entry;
	memcpy(s->key_rest, item->key.bytes + 16, 16);
	entry_count_first(store, entry);
	if (parent && parent != UINT32_MAX) {
		catalog_set_parent(store->catalog, entry, parent);
		if (catalog_at(store->catalog, parent)->flags & CATALOG_CLOSED)
			e->flags |= CATALOG_CLOSED;
		else if (catalog_at(store->catalog, parent)->used != (uint16_t)store->tick)
			entry_touch(store, parent, 0);
	}
	work->slot[index] = slot;
	work->birth[index] = catalog_birth(e);
	work->step[index] = PUT_COPY;
	work->copying_bytes += bytes;
	return CAIRN_OK;
}

/* Without the lock: the bytes. */
static void put_copy(struct put_work *work, size_t index)
{
	cairn *store = work->store;
	struct cairn_item *item = &work->items[index];
	uint8_t *to = memory_address(store->memory, work->slot[index]);
	const struct store_source *source = work->call->source;
	struct digest_xxh xxh;
	if (source) {
		item->status = source->take(source->arg, item, to, &item->ret_check);
		return;
	}
	digest_xxh_init(&xxh, 0);
	buffers_fence(item);
	for (uint32_t i = 0; i < item->nbufs; i++) {
		digest_xxh_copy(&xxh, to, buffer_address(&item->bufs[i]), item->bufs[i].length);
		to += item->bufs[i].length;
	}
	item->ret_check = digest_xxh_done(&xxh);
}

/* ---- to flash ---------------------------------------------------------------------------------------------------- */

static void write_done(struct tier_req *tier)
{
	struct store_req *req = tier->owner;
	cairn *store = req->store;
	pthread_mutex_lock(&store->lock);
	struct memory_slot *s = memory_slot(store->memory, req->slot);
	s->dirty = 0;
	store->dirty_bytes -= s->length;
	store->tenants[s->tenant].dirty_bytes -= s->length;
	if (tier->result == CAIRN_E_QUOTA) { /* of its tenant: no fault of the device, and no sync of others fails */
		store->tenants[s->tenant].stat.quota_refused++;
	} else if (tier->result) {
		store->stat.tier[CAIRN_TIER_FLASH].errors++;
		store->sync_error = tier->result;
		if (tier->result == CAIRN_E_IO)
			store->devices[req->device].avoid_until_ns = clock_mono_ns(store->clock) + STORE_AVOID_NS;
	}
	if (req->result)
		*req->result = tier->result;
	slot_release(store, req->slot);
	store_req_drop(req);
	pthread_mutex_unlock(&store->lock);
}

static double device_fill(const struct device *device)
{
	return (double)device->live_bytes / (double)device->budget_bytes;
}

/* Nearly full, while another device has room: a chain is better split than evicted. */
static int device_crowded(const cairn *store, uint32_t index)
{
	double fill = device_fill(&store->devices[index]);
	for (uint32_t i = 0; i < store->ndevices && fill > 0.7; i++)
		if (store->devices[i].flash && device_fill(&store->devices[i]) < fill - 0.2)
			return 1;
	return 0;
}

/* The device of a part: that of its chain; a chain that begins takes the emptiest. One that just failed is the last
 * choice. */
static uint32_t device_for(cairn *store, const struct catalog_entry *e, uint32_t hint)
{
	uint64_t now = clock_mono_ns(store->clock);
	if (hint && store->devices[hint - 1].flash && store->devices[hint - 1].avoid_until_ns <= now)
		return hint - 1;
	if (e->parent) {
		const struct catalog_entry *p = catalog_at(store->catalog, e->parent);
		const struct device *device = &store->devices[p->device];
		/* In flash there, or on its way; while it fits, or the others are as full. */
		if (!(p->flags & CATALOG_GHOST) && device->flash && device->avoid_until_ns <= now &&
		    !device_crowded(store, p->device))
			return p->device;
	}
	uint32_t best = UINT32_MAX;
	double least = 0;
	for (uint32_t i = 0; i < store->ndevices; i++) {
		uint32_t at = (store->next_device + i) % store->ndevices;
		const struct device *device = &store->devices[at];
		if (!device->flash)
			continue;
		double fill = device_fill(device) + (device->avoid_until_ns > now ? 10 : 0);
		if (best == UINT32_MAX || fill < least - 0.01) {
			least = fill;
			best = at;
		}
	}
	store->next_device++;
	return best;
}

int write_start(cairn *store, const struct cairn_space *space, uint32_t entry, const uint8_t key[32], uint32_t group,
                const struct store_call *call, int32_t *result)
{
	struct catalog_entry *e = catalog_at(store->catalog, entry);
	uint32_t slot = e->slot;
	struct memory_slot *s = memory_slot(store->memory, slot);
	check(s->state == MEMORY_READY && !s->dirty);
	uint32_t device = device_for(store, e, call->device_hint);
	if (device == UINT32_MAX)
		return CAIRN_E_IO;
	s->refs++;
	struct store_req *req = tenant_req_take(store, space->tenant, call->deadline_ns);
	int gone = s->entry != entry; /* the lock was let go: dropped, perhaps */
	if (!gone)
		e = catalog_at(store->catalog, entry);
	if (!req || gone || s->dirty || (e->flags & CATALOG_FLASH)) {
		if (req)
			store_req_drop(req);
		slot_release(store, slot);
		if (result)
			*result = 0; /* somebody else writes it */
		return !req ? CAIRN_E_LATE : gone ? CAIRN_E_CANCELED : 0;
	}
	e->device = (uint8_t)device;
	s->dirty = 1;
	store->dirty_bytes += s->length;
	store->tenants[s->tenant].dirty_bytes += s->length;
	struct fmt_entry *to = &req->req.entry;
	memcpy(to->key, key, 32);
	memcpy(to->space, space->id, 32);
	if (e->parent) {
		const struct catalog_entry *p = catalog_at(store->catalog, e->parent);
		memcpy(to->parent, p->prefix, 16); /* what links the chain again at reopen */
	}
	to->part = e->part;
	to->group = (uint16_t)group;
	to->flags = (uint8_t)((e->flags & CATALOG_TAIL ? FMT_PART_TAIL : 0) |
	                      (e->flags & CATALOG_MANIFEST ? FMT_PART_MANIFEST : 0));
	to->raw_length = to->stored_length = e->length;
	to->raw_check = s->raw_check;
	uint64_t stored = catalog_check_of(e);
	memcpy(to->stored_check, &stored, 8);
	to->birth = catalog_birth(e);
	memcpy(req->req.tenant, store->tenants[space->tenant].digest, 16);
	req->req.op = TIER_WRITE;
	req->req.background = call->background;
	req->req.flow = space->tenant;
	req->req.bytes = memory_address(store->memory, slot);
	req->req.done = write_done;
	req->slot = slot;
	req->device = device;
	req->result = result;
	if (result)
		*result = PUT_PENDING;
	admit_budget_charge(&store->write_budget, s->length);
	store->devices[device].ops->submit(store->devices[device].flash, &req->req);
	return 0;
}

/* With a write budget what is before a durable part may be in memory alone: without it the part would be an orphan
 * after a restart. */
static int heads_down(struct put_work *work, uint32_t slot)
{
	cairn *store = work->store;
	int error = 0;
	do {
		uint32_t entry = memory_slot(store->memory, slot)->entry;
		uint32_t parent = entry ? catalog_at(store->catalog, entry)->parent : 0;
		if (!entry)
			return CAIRN_E_CANCELED; /* dropped while we waited */
		error = parent && down_budgeted(store) ? down_chain(store, parent, work->call) : 0;
	} while (error == CAIRN_E_BUSY && !store_wait(store, work->call->deadline_ns));
	return error == CAIRN_E_BUSY ? CAIRN_E_LATE : error;
}

/* After the copy: visible, and on its way to flash. */
static void put_publish(struct put_work *work, size_t index)
{
	cairn *store = work->store;
	struct cairn_item *item = &work->items[index];
	uint32_t slot = work->slot[index], entry = memory_slot(store->memory, slot)->entry;
	struct memory_slot *s = memory_slot(store->memory, slot);
	work->step[index] = PUT_DONE;
	work->copying_bytes -= s->length;
	s->state = MEMORY_READY;
	s->raw_check = item->ret_check;
	item->ret_tier = CAIRN_TIER_MEMORY;
	if (!entry) { /* dropped while it was copied: it came before the drop */
		slot_release(store, slot);
		return;
	}
	struct catalog_entry *e = catalog_at(store->catalog, entry);
	catalog_set_check(e, segment_stored_check(item->key.bytes, work->space->id, item->part, e->length, e->length, 0,
	                                          s->raw_check));
	slot_recent(store, slot);
	entry_tick(store, e->length);
	entry_event(store, e, CAIRN_EVENT_STORED, CAIRN_TIER_MEMORY, 0);
	count_written(store, work->space, e->length);
	work->step[index] = PUT_STORED;
	work->write[index] = 0;
	/* Tails go down with their saved session alone; a chain without its head is not worth a write unless asked for. */
	int durable = work->call->durability == CAIRN_DURABLE_FLASH;
	int worth = durable || (!down_budgeted(store) && !(e->flags & (CATALOG_TAIL | CATALOG_CLOSED)) &&
	                        !work->skip[index]);
	if (store_has_flash(store) && worth) {
		int error = durable ? heads_down(work, slot) : 0;
		if (!error)
			error =
				write_start(store, work->space, entry, item->key.bytes, item->group, work->call, &work->write[index]);
		if (error == CAIRN_E_CANCELED)
			error = 0;
		if (error && durable)
			work->write[index] = error;
	}
	slot_release(store, slot);
}

/* The bytes did not come: nobody has seen the part, and others that waited for it may put theirs. */
static void put_abandon(struct put_work *work, size_t index)
{
	cairn *store = work->store;
	uint32_t slot = work->slot[index], entry = memory_slot(store->memory, slot)->entry;
	work->step[index] = PUT_DONE;
	work->copying_bytes -= memory_slot(store->memory, slot)->length;
	if (entry)
		entry_abandon(store, entry);
	slot_release(store, slot);
}

/* Writes an entry down that is in memory but was not written by its put. */
static void existing_down(struct put_work *work, size_t index)
{
	cairn *store = work->store;
	struct cairn_item *item = &work->items[index];
	uint32_t entry = catalog_find(store->catalog, work->space->number, item->key.bytes, item->part);
	if (!entry)
		return;
	struct catalog_entry *e = catalog_at(store->catalog, entry);
	if (!e->slot || (e->flags & CATALOG_FLASH) || memory_slot(store->memory, e->slot)->state != MEMORY_READY ||
	    memory_slot(store->memory, e->slot)->dirty)
		return;
	uint32_t slot = e->slot;
	memory_slot(store->memory, slot)->refs++;
	int error = heads_down(work, slot);
	const struct memory_slot *s = memory_slot(store->memory, slot);
	if (!error && s->entry == entry && !s->dirty && !(catalog_at(store->catalog, entry)->flags & CATALOG_FLASH))
		error =
			write_start(store, work->space, entry, item->key.bytes, item->group, work->call, &work->write[index]);
	slot_release(store, slot);
	if (error && error != CAIRN_E_CANCELED)
		work->write[index] = error;
}

static void writes_abandon(struct put_work *work)
{
	cairn *store = work->store;
	for (int i = 0; i < STORE_REQS; i++)
		if (store->reqs[i].result >= work->write && store->reqs[i].result < work->write + STORE_BATCH)
			store->reqs[i].result = NULL;
}

static int32_t durable_status(struct put_work *work, size_t index)
{
	cairn *store = work->store;
	struct cairn_item *item = &work->items[index];
	uint32_t entry = catalog_find(store->catalog, work->space->number, item->key.bytes, item->part);
	const struct catalog_entry *e = entry ? catalog_at(store->catalog, entry) : NULL;
	if (e && (e->flags & CATALOG_FLASH) && (e->flags & CATALOG_DURABLE)) {
		item->ret_tier = CAIRN_TIER_FLASH;
		return item->status;
	}
	if (!store_has_flash(store))
		return err_set(CAIRN_E_IO, "put: the store has no flash device that works");
	int32_t write = work->write[index];
	if (write == CAIRN_E_QUOTA)
		return err_set(write, "put: the tenant's flash quota of %llu bytes is used up, and nothing of its own may be "
		               "evicted: unpin sessions, or raise the quota",
		               (unsigned long long)store->tenants[work->space->tenant].limits.flash_quota_bytes);
	/* Another one under its key is somebody else's, who came after a drop. */
	int gone = !e || (e->flags & CATALOG_GHOST) || catalog_birth(e) != work->birth[index];
	int failed = 0; /* a device did, lately */
	for (uint32_t i = 0; i < store->ndevices; i++)
		failed |= store->devices[i].avoid_until_ns > clock_mono_ns(store->clock);
	if (write == CAIRN_E_FULL ||
	    (!write && !gone && !failed)) /* refused, or it had to make room for what came after it */
		return err_set(CAIRN_E_FULL,
		               "put: flash is full and nothing in it may be evicted: free space, or raise the budget");
	if (write == CAIRN_E_LATE || write == CAIRN_E_RDONLY)
		return write;
	if (gone && !write) {
		struct catalog_memory memory;
		catalog_recall(store->catalog, gone_print(work->space->id, item->key.bytes, item->part), &memory);
		if (memory.reason == CAIRN_WHY_DROPPED || memory.reason == CAIRN_WHY_ORPHAN)
			return item->status; /* after it was put: the drop, of it or of its chain's head, is what lasts */
		if (memory.reason == CAIRN_WHY_EVICTED)
			return err_set(CAIRN_E_FULL, "put: flash is too small: it had to make room for what came after this part");
		if (!failed)
			return err_set(CAIRN_E_FULL,
			               "put: the part was gone again before it was durable: flash or catalog are too small");
	}
	return err_set(CAIRN_E_IO, "put: the flash device failed before the part was durable");
}

/* With durability flash: waits until all of the batch is flushed, and says which are. */
static void put_durable(struct put_work *work)
{
	cairn *store = work->store;
	int error = 0, wanted = 0;
	for (size_t i = 0; i < work->n; i++)
		wanted |= work->step[i] == PUT_STORED;
	if (!wanted)
		return;
	for (int round = 0; round < 3 && !error; round++) {
		int again = 0;
		for (size_t i = 0; i < work->n && !error; i++)
			if (work->step[i] == PUT_STORED && (round || work->items[i].status == CAIRN_EXISTED)) {
				existing_down(work, i);
				again |= work->write[i] == PUT_PENDING;
			}
		if (round && !again)
			break;
		for (size_t i = 0; i < work->n && !error; i++)
			while (work->write[i] == PUT_PENDING && !error)
				error = store_wait(store, work->call->deadline_ns);
		if (!error)
			error = store_sync(store, work->call->deadline_ns);
		int missing = 0; /* withdrawn by a failed flush, or refused by one device of several: once more */
		for (size_t i = 0; i < work->n; i++) {
			uint32_t entry = catalog_find(store->catalog, work->space->number, work->items[i].key.bytes,
			                              work->items[i].part);
			int again_elsewhere = work->write[i] == CAIRN_E_IO && store->ndevices > 1;
			missing |= work->step[i] == PUT_STORED && entry && (!work->write[i] || again_elsewhere) &&
			           !(catalog_at(store->catalog, entry)->flags & CATALOG_DURABLE);
		}
		if (!missing)
			break;
	}
	for (size_t i = 0; i < work->n; i++) {
		if (work->step[i] != PUT_STORED)
			continue;
		if (error == CAIRN_E_LATE)
			work->items[i].status = err_set(error, "put: not durable in time; it may become so later");
		else
			work->items[i].status = durable_status(work, i);
	}
}

/* Copies and publishes the items [from, to) of a batch that have a slot. */
static void put_copies(struct put_work *work, size_t from, size_t to)
{
	pthread_mutex_unlock(&work->store->lock);
	for (size_t i = from; i < to; i++)
		if (work->step[i] == PUT_COPY)
			put_copy(work, i);
	pthread_mutex_lock(&work->store->lock);
	for (size_t i = from; i < to; i++)
		if (work->step[i] == PUT_COPY && work->items[i].status < 0)
			put_abandon(work, i);
		else if (work->step[i] == PUT_COPY)
			put_publish(work, i);
}

static void put_batch(struct put_work *work)
{
	cairn *store = work->store;
	size_t copied = 0;
	for (size_t i = 0; i < work->n; i++) {
		work->step[i] = PUT_DONE;
		work->write[i] = 0;
		work->skip[i] = 0;
		const uint64_t *evicted = &store->stat.tier[CAIRN_TIER_MEMORY].evicted_parts, before = *evicted;
		int32_t status = put_begin(work, i);
		if (status == CAIRN_E_BUSY && copied < i) {
			/* Our own copies stand in the way: finish them, then this one again. */
			put_copies(work, copied, i);
			copied = i;
			status = put_begin(work, i);
		}
		work->items[i].status = status;
		/* Others had to go for it. Once it is published the policy can refuse it in turn, from the tail of its chain,
		 * before the whole batch has pushed out what is worth more. */
		if (*evicted != before) {
			put_copies(work, copied, i + 1);
			copied = i + 1;
		}
		if (status != CAIRN_EXISTED)
			continue;
		work->step[i] = PUT_STORED;
		/* In memory alone: on its way down before what follows makes room, for it would go, and its block with it. */
		if (work->call->durability == CAIRN_DURABLE_FLASH && store_has_flash(store))
			existing_down(work, i);
	}
	put_copies(work, copied, work->n);
	if (work->call->durability == CAIRN_DURABLE_FLASH)
		put_durable(work);
	writes_abandon(work);
}

int store_call_of(cairn *store, const struct cairn_call *call, struct store_call *ret_call)
{
	struct cairn_call given = {0};
	if (call && (!call->size || call->size > 4096))
		return err_set(CAIRN_E_INVAL, "cairn_call: set size to sizeof(struct cairn_call)");
	if (call)
		memcpy(&given, call, call->size < sizeof(given) ? call->size : sizeof(given));
	if (given.durability > CAIRN_DURABLE_FLASH)
		return err_set(CAIRN_E_INVAL, "durability %u: this store has memory and flash", given.durability);
	memset(ret_call, 0, sizeof(*ret_call));
	ret_call->deadline_ns = store_deadline(store, given.timeout_ms);
	ret_call->durability = given.durability ? given.durability : CAIRN_DURABLE_NONE;
	ret_call->background = given.background;
	return 0;
}

long store_put(cairn *store, const struct cairn_space *space, struct cairn_item *items, size_t n,
               const struct store_call *call)
{
	long good = 0;
	struct put_work work = {.store = store, .space = space, .call = call};
	for (size_t from = 0; from < n; from += STORE_BATCH) {
		work.items = items + from;
		work.n = n - from < STORE_BATCH ? n - from : STORE_BATCH;
		for (size_t i = 0; i < work.n; i++)
			work.items[i].ret_tier = CAIRN_TIER_NONE;
		put_batch(&work);
		for (size_t i = 0; i < work.n; i++)
			good += work.items[i].status == CAIRN_OK || work.items[i].status == CAIRN_EXISTED;
	}
	return good;
}

static int fail_items(struct cairn_item *items, size_t n, int status)
{
	for (size_t i = 0; i < n; i++) {
		items[i].status = status;
		items[i].ret_tier = CAIRN_TIER_NONE;
		items[i].ret_bytes = items[i].ret_check = 0;
	}
	return status;
}

long store_put_from(cairn *store, const struct cairn_space *space, struct cairn_item *items, size_t nitems,
                    const struct cairn_call *given, const struct store_source *source)
{
	struct store_call call;
	int error = !store || !space || space->store != store || (nitems && !items)
	                ? err_set(CAIRN_E_INVAL, "put: no store, a space of another store, or no items")
	                : store_call_of(store, given, &call);
	if (!error && (store->flags & CAIRN_OPEN_READONLY))
		error = err_set(CAIRN_E_RDONLY, "put: the store is open read-only");
	if (!error && !space->described)
		error = err_set(CAIRN_E_INVAL, "put: the space is not described");
	if (!error && space->misses)
		error =
			err_set(CAIRN_E_UNKNOWN, "put: the weights digest of the space is unknown: give it (cairn_weights_digest)");
	if (!error)
		error = events_keep_hashes(store, space, items, nitems);
	if (error)
		return items ? fail_items(items, nitems, error) : error;
	buffers_use(items, nitems, 1);
	call.source = source;
	long good;
	if (store->remote) {
		struct cairn_call plain = {.timeout_ms = given ? given->timeout_ms : 0,
		                           .durability = call.durability,
		                           .background = call.background};
		good = remote_put(store, (struct cairn_space *)(uintptr_t)space, items, nitems, &plain);
	} else {
		pthread_mutex_lock(&store->lock);
		good = store_put(store, space, items, nitems, &call);
		pthread_mutex_unlock(&store->lock);
	}
	buffers_use(items, nitems, -1);
	return good;
}

CAIRN_API long cairn_put(cairn *store, const struct cairn_space *space, struct cairn_item *items, size_t nitems,
                         const struct cairn_call *given)
{
	return store_put_from(store, space, items, nitems, given, NULL);
}

CAIRN_API int cairn_sync(cairn *store)
{
	if (store->remote)
		return remote_sync(store);
	pthread_mutex_lock(&store->lock);
	int error = store->flags & CAIRN_OPEN_READONLY ? 0 : store_sync(store, UINT64_MAX);
	if (!error)
		error = store->sync_error;
	store->sync_error = 0;
	pthread_mutex_unlock(&store->lock);
	if (error == CAIRN_E_FULL)
		return err_set(error, "sync: flash had no room for some of what was put");
	return error ? err_set(error, "sync: a flash device failed") : 0;
}

/* ---- making durable what is there already (sessions) ------------------------------------------------------------- */

int store_make_durable(cairn *store, const struct cairn_space *space, const cairn_key *keys, size_t nkeys,
                       uint64_t deadline_ns, size_t *ret_missing)
{
	struct store_call call = {.deadline_ns = deadline_ns, .durability = CAIRN_DURABLE_FLASH};
	struct put_work work = {.store = store, .space = space, .call = &call};
	struct cairn_item items[STORE_BATCH];
	uint32_t nparts = space->space.desc.nparts ? space->space.desc.nparts : 1;
	size_t per = STORE_BATCH / nparts;
	for (size_t from = 0; from < nkeys; from += per) {
		memset(items, 0, sizeof(items));
		work.items = items;
		work.n = 0;
		for (size_t k = from; k < nkeys && k < from + per; k++) {
			int any = 0;
			for (uint32_t part = 0; part < nparts; part++) {
				uint32_t entry = catalog_find(store->catalog, space->number, keys[k].bytes, part);
				if (!entry || !visible(store, catalog_at(store->catalog, entry))) {
					if (space->space.required_parts >> part & 1 || nparts == 1) {
						*ret_missing = k;
						return CAIRN_E_NOENT;
					}
					continue;
				}
				any = 1;
				entry_touch(store, entry, 1);
				struct cairn_item *item = &items[work.n];
				item->key = keys[k];
				item->part = (uint16_t)part;
				item->status = CAIRN_EXISTED;
				work.birth[work.n] = catalog_birth(catalog_at(store->catalog, entry));
				work.step[work.n] = PUT_STORED;
				work.write[work.n++] = 0;
			}
			if (!any) {
				*ret_missing = k;
				return CAIRN_E_NOENT;
			}
		}
		put_durable(&work);
		writes_abandon(&work);
		for (size_t i = 0; i < work.n; i++)
			if (items[i].status < 0)
				return items[i].status;
	}
	return 0;
}
