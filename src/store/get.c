/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Getting parts: reads land in the memory tier, the reader copies out of it and checks what it copied.
 *
 * All parts of a step are asked for before the first is waited for. A part that fails its check is a miss: the
 * destination is zeroed, the copy that failed is quarantined, and a good one elsewhere is used instead.
 *
 * Threads: the caller's. Memory: none.
 * Invariant: a destination is written only by the running call; a deadline is looked at before the copy, never in it.
 */
#include <string.h>

#include "base/check.h"
#include "base/digest.h"
#include "base/err.h"
#include "base/mem.h"
#include "store/peer.h"
#include "store/remote.h"
#include "store/store.h"

/* ---- landing: from flash into a slot ----------------------------------------------------------------------------- */

/* A part failed its check in flash. Durable, so that it does not come back; without a wait. */
static void quarantine_done(struct tier_req *tier)
{
	struct store_req *req = tier->owner;
	cairn *store = req->store;
	pthread_mutex_lock(&store->lock);
	store_req_drop(req);
	store_changed(store);
	pthread_mutex_unlock(&store->lock);
}

static void quarantine(cairn *store, const struct fmt_entry *entry, uint32_t device)
{
	if (list_empty(&store->reqs_free) || (store->flags & CAIRN_OPEN_READONLY))
		return; /* its bytes stay bad: the next reader finds out too */
	struct store_req *req = store_req_take(store, 0);
	req->req.op = TIER_DECIDE;
	req->req.record.type = LEDGER_QUARANTINE;
	memcpy(req->req.record.u.quarantine.key, entry->key, 32);
	memcpy(req->req.record.u.quarantine.space, entry->space, 32);
	req->req.record.u.quarantine.part = entry->part;
	req->req.record.u.quarantine.birth = entry->birth;
	req->req.done = quarantine_done;
	store->devices[device].ops->submit(store->devices[device].flash, &req->req);
}

static void read_done(struct tier_req *tier)
{
	struct store_req *req = tier->owner;
	cairn *store = req->store;
	pthread_mutex_lock(&store->lock);
	struct memory_slot *s = memory_slot(store->memory, req->slot);
	uint32_t entry = s->entry;
	struct device *device = &store->devices[req->device];
	rate_end(&device->reads, s->length, tier->result ? 0 : s->length, clock_mono_ns(store->clock));
	if (tier->result == 0) {
		s->raw_check = tier->entry.raw_check;
		s->state = MEMORY_READY;
		device->hits++;
		device->hit_bytes += s->length;
		if (entry) {
			struct catalog_entry *e = catalog_at(store->catalog, entry);
			slot_recent(store, req->slot);
			entry_event(store, e, CAIRN_EVENT_STORED, CAIRN_TIER_MEMORY, 0);
		}
	} else {
		s->state = MEMORY_FAILED;
		s->error = (int16_t)tier->result;
		if (tier->result == CAIRN_E_IO) {
			store->stat.tier[CAIRN_TIER_FLASH].errors++;
			device->errors++;
		}
		if (entry) {
			struct catalog_entry *e = catalog_at(store->catalog, entry);
			e->slot = 0;
			s->entry = 0;
			if (tier->result == CAIRN_DAMAGED && (e->flags & CATALOG_FLASH) && catalog_birth(e) == tier->entry.birth) {
				device->damaged++;
				quarantine(store, &tier->entry, req->device);
				entry_flash_clear(store, entry, CAIRN_WHY_DAMAGED);
			} else if (!(e->flags & CATALOG_FLASH)) {
				entry_gone(store, entry, CAIRN_TIER_FLASH, CAIRN_WHY_EVICTED);
			}
		}
	}
	slot_release(store, req->slot);
	store_req_drop(req);
	pthread_mutex_unlock(&store->lock);
}

/* Starts the read of a part that is in flash alone. Returns its slot with one ref for the caller; 0: no room now. */
static uint32_t read_start(cairn *store, const struct cairn_space *space, uint32_t entry, const cairn_key *key,
                           uint32_t background, const uint32_t *older_than)
{
	if (list_empty(&store->reqs_free) || !tenant_may_ask(store, space->tenant))
		return 0;
	struct catalog_entry *e = catalog_at(store->catalog, entry);
	uint64_t birth = catalog_birth(e);
	uint8_t more = e->holds < UINT8_MAX;
	e->holds = (uint8_t)(e->holds + more); /* room is made by evicting: not this one */
	uint32_t slot = slot_take(store, space->tenant, e->length, older_than);
	e->holds = (uint8_t)(e->holds - more);
	check(catalog_birth(e) == birth);
	if (!slot)
		return 0;
	struct store_req *req = tenant_req_take(store, space->tenant, 0);
	if (!req) { /* what was evicted went down to flash, with the last of them */
		slot_release(store, slot);
		return 0;
	}
	struct memory_slot *s = memory_slot(store->memory, slot);
	s->entry = entry;
	s->refs++; /* the caller's; the first is the read's */
	memcpy(s->key_rest, key->bytes + 16, 16);
	e->slot = slot;
	struct fmt_entry *want = &req->req.entry;
	memcpy(want->key, key->bytes, 32);
	memcpy(want->space, space->id, 32);
	want->part = e->part;
	want->raw_length = want->stored_length = e->length;
	want->birth = birth;
	req->req.op = TIER_READ;
	req->req.background = background;
	req->req.flow = space->tenant;
	req->req.check = catalog_check_of(e);
	req->req.bytes = memory_address(store->memory, slot);
	req->req.done = read_done;
	req->slot = slot;
	req->device = e->device;
	rate_begin(&store->devices[e->device].reads, e->length, clock_mono_ns(store->clock));
	store->devices[e->device].ops->submit(store->devices[e->device].flash, &req->req);
	return slot;
}

int read_ahead(cairn *store, const struct cairn_space *space, uint32_t entry, const cairn_key *key, uint32_t since)
{
	uint32_t slot = read_start(store, space, entry, key, 1, &since);
	if (slot)
		slot_release(store, slot);
	return slot != 0;
}

/* ---- one step of a batch ----------------------------------------------------------------------------------------- */

enum get_step {
	GET_DONE = 0,
	GET_WAIT = 1,  /* holds a ref of a slot that is READY or will be */
	GET_LATER = 2, /* no room in memory yet: after earlier parts were copied */
};
#define GET_PATIENCE_NS 10000000000ull

struct get_work {
	cairn *store;
	const struct cairn_space *space;
	struct cairn_item *items;
	size_t n;
	const struct store_call *call;
	int read_on; /* was done for this step */
	uint8_t step[STORE_BATCH];
	uint8_t tier[STORE_BATCH];
	uint32_t slot[STORE_BATCH];
};

/* The part is on a device whose reads are stepped over. */
static int32_t stepped_over(cairn *store, const struct catalog_entry *e)
{
	return err_set(CAIRN_E_IO, "get: %s is stepped over for now: reads of it failed or took too long",
	               store->devices[e->device].path);
}

/* A part that is not here, from a peer that is known to have it. */
static int32_t slot_far(cairn *store, const struct peer_name *name, const struct store_call *call, uint32_t *ret_slot,
                        uint32_t *ret_tier, uint64_t *ret_bytes)
{
	const struct cairn_space *space = name->space;
	if (!store->peers || call->here || !space->described || space->misses || name->part >= space->space.desc.nparts)
		return CAIRN_MISS;
	int32_t status = peer_want(store, name, ret_slot, ret_bytes);
	if (!status)
		*ret_tier = CAIRN_TIER_PEER;
	return status;
}

static int32_t slot_want(cairn *store, const struct peer_name *name, const struct store_call *call, uint32_t *ret_slot,
                         uint32_t *ret_tier, uint64_t *ret_bytes)
{
	const struct cairn_space *space = name->space;
	const cairn_key *key = name->key;
	uint32_t entry = space->misses ? 0 : catalog_find(store->catalog, space->number, key->bytes, name->part);
	*ret_slot = 0;
	if (!entry || (catalog_at(store->catalog, entry)->flags & CATALOG_GHOST))
		return slot_far(store, name, call, ret_slot, ret_tier, ret_bytes);
	struct catalog_entry *e = catalog_at(store->catalog, entry);
	*ret_bytes = e->length;
	if (e->slot) {
		struct memory_slot *s = memory_slot(store->memory, e->slot);
		if (memcmp(s->key_rest, key->bytes + 16, 16))
			return CAIRN_MISS; /* another key with this prefix */
		if (s->state == MEMORY_FILLING && !(e->flags & CATALOG_FLASH))
			return CAIRN_MISS; /* its writer has not finished: not visible yet */
		if (s->state == MEMORY_FILLING && !entry_readable(store, e))
			return stepped_over(store, e);
		if (s->refs == UINT16_MAX)
			return CAIRN_E_BUSY;
		s->refs++;
		*ret_slot = e->slot;
		*ret_tier = s->state != MEMORY_READY ? CAIRN_TIER_FLASH : s->far ? CAIRN_TIER_PEER : CAIRN_TIER_MEMORY;
	} else {
		if (!entry_readable(store, e))
			return stepped_over(store, e);
		if (e->length > memory_part_max(store->memory))
			return CAIRN_E_BUSY;
		*ret_slot = read_start(store, space, entry, key, call->background, NULL);
		*ret_tier = CAIRN_TIER_FLASH;
		if (!*ret_slot)
			return CAIRN_E_BUSY;
	}
	entry_touch(store, entry, 1);
	return CAIRN_OK;
}

/* A reader's use of a part; a match that is open has counted it. */
static void use_count(cairn *store, uint32_t slot)
{
	uint32_t entry = memory_slot(store->memory, slot)->entry;
	if (entry && !catalog_at(store->catalog, entry)->holds)
		entry_count(store, entry);
}

static void get_begin(struct get_work *work, size_t i)
{
	struct cairn_item *item = &work->items[i];
	struct peer_name name = {work->space, &item->key, item->part};
	uint32_t tier = CAIRN_TIER_NONE;
	uint64_t bytes = 0, room;
	work->step[i] = GET_DONE;
	if (buffers_check(item, &room)) {
		item->status = err_set(CAIRN_E_INVAL, "get: a buffer of the item lies outside of its region");
		return;
	}
	int32_t status = slot_want(work->store, &name, work->call, &work->slot[i], &tier, &bytes);
	item->ret_bytes = bytes;
	if (!status && bytes > room) {
		slot_release(work->store, work->slot[i]);
		status = err_set(CAIRN_E_SIZE, "get: the part has %llu bytes, the buffers %llu", (unsigned long long)bytes,
		                 (unsigned long long)room);
	}
	item->status = status;
	work->tier[i] = (uint8_t)tier;
	if (!status)
		use_count(work->store, work->slot[i]);
	if (!status)
		work->step[i] = GET_WAIT;
	else if (status == CAIRN_E_BUSY)
		work->step[i] = GET_LATER;
}

void buffers_zero(const struct cairn_item *item)
{
	for (uint32_t i = 0; i < item->nbufs; i++)
		if (item->bufs[i].length)
			memset(buffer_address(&item->bufs[i]), 0, item->bufs[i].length);
}

int buffers_deliver(struct cairn_item *item, const uint8_t *from, uint64_t bytes, uint64_t check)
{
	int checked = !(item->flags & CAIRN_ITEM_UNCHECKED);
	struct digest_xxh xxh;
	if (checked)
		digest_xxh_init(&xxh, 0);
	for (uint32_t i = 0; i < item->nbufs && bytes; i++) {
		uint64_t take = item->bufs[i].length < bytes ? item->bufs[i].length : bytes;
		if (checked)
			digest_xxh_copy(&xxh, buffer_address(&item->bufs[i]), from, take);
		else if (take)
			memcpy(buffer_address(&item->bufs[i]), from, take);
		from += take;
		bytes -= take;
	}
	item->ret_check = checked ? digest_xxh_done(&xxh) : check;
	if (item->ret_check == check) {
		buffers_fence(item);
		return 1;
	}
	buffers_zero(item);
	return 0;
}

/* Without the lock, holding the slot: copies and checks what was copied. 1: good. */
static int copy_out(const cairn *store, struct cairn_item *item, uint32_t slot)
{
	return buffers_deliver(item, memory_address(store->memory, slot), item->ret_bytes,
	                       memory_slot(store->memory, slot)->raw_check);
}

void store_copied(cairn *store, uint64_t bytes, uint64_t took_ns, uint64_t now_ns)
{
	if (bytes >= 65536) /* less is mostly the cost of the call */
		rate_tell(&store->copies, bytes, took_ns, now_ns);
}

/* The copy in memory is bad: out with it; 1: there is another one in flash. */
static int memory_damaged(cairn *store, uint32_t slot)
{
	uint32_t entry = memory_slot(store->memory, slot)->entry;
	store->stat.tier[CAIRN_TIER_MEMORY].damaged_parts++;
	if (!entry)
		return 0;
	int elsewhere = (catalog_at(store->catalog, entry)->flags & CATALOG_FLASH) != 0;
	entry_memory_clear(store, entry, CAIRN_WHY_DAMAGED);
	return elsewhere;
}

/* Waits for the bytes of a slot. 0: they are here; else the status, and the slot is let go of. */
static int32_t slot_await(cairn *store, const struct peer_name *name, uint32_t slot, uint32_t tier,
                          uint64_t deadline_ns)
{
	const struct memory_slot *s = memory_slot(store->memory, slot);
	int32_t status = tier == CAIRN_TIER_PEER ? peer_await(store, name, slot, deadline_ns) : 0;
	while (s->state == MEMORY_FILLING && !status) {
		const struct catalog_entry *e = s->entry ? catalog_at(store->catalog, s->entry) : NULL;
		if (e && (e->flags & CATALOG_FLASH) && store->hung >> e->device & 1)
			status = stepped_over(store, e); /* what still arrives stays */
		else
			status = store_wait(store, deadline_ns);
	}
	if (!status && s->state == MEMORY_FAILED)
		status = s->error;
	if (status)
		slot_release(store, slot);
	return status;
}

static void get_finish(struct get_work *work, size_t i)
{
	cairn *store = work->store;
	struct cairn_item *item = &work->items[i];
	struct peer_name name = {work->space, &item->key, item->part};
	for (int again = 0; work->step[i] == GET_WAIT; again++) {
		uint32_t slot = work->slot[i];
		const struct memory_slot *s = memory_slot(store->memory, slot);
		item->status = slot_await(store, &name, slot, work->tier[i], work->call->deadline_ns);
		if (item->status == CAIRN_MISS && work->tier[i] == CAIRN_TIER_PEER) {
			get_begin(work, i); /* the next best peer; in the end a miss */
			continue;
		}
		if (item->status == CAIRN_E_LATE)
			(void)err_set(CAIRN_E_LATE, "get: not here in time");
		if (item->status == CAIRN_DAMAGED)
			buffers_zero(item);
		if (item->status)
			break;
		pthread_mutex_unlock(&store->lock);
		uint64_t begun = clock_mono_ns(store->clock);
		int good = copy_out(store, item, slot);
		uint64_t ended = clock_mono_ns(store->clock);
		pthread_mutex_lock(&store->lock);
		if (good) {
			item->status = CAIRN_OK;
			item->ret_tier = work->tier[i];
			store_copied(store, item->ret_bytes, ended - begun, ended);
			if (work->tier[i] == CAIRN_TIER_PEER)
				peer_link(store, &name);
			memory_slot(store->memory, slot)->far = 0;
			count_hit(store, work->space, work->tier[i], item->ret_bytes);
			if (s->entry)
				slot_recent(store, slot);
			slot_release(store, slot);
			break;
		}
		int elsewhere = memory_damaged(store, slot);
		slot_release(store, slot);
		item->status = CAIRN_DAMAGED;
		if (!elsewhere || again)
			break;
		get_begin(work, i);
	}
	work->step[i] = GET_DONE;
}

/* All of the batch is begun: what comes after its last part that is not in memory will be asked for next. */
static void read_on(struct get_work *work)
{
	for (size_t i = work->n; i-- > 0 && !work->call->background && !work->read_on;) {
		const struct peer_name name = {work->space, &work->items[i].key, work->items[i].part};
		if (work->step[i] != GET_WAIT || (work->tier[i] != CAIRN_TIER_FLASH && work->tier[i] != CAIRN_TIER_PEER))
			continue;
		uint32_t entry = memory_slot(work->store->memory, work->slot[i])->entry;
		work->read_on = 1;
		if (work->tier[i] == CAIRN_TIER_PEER)
			match_fetch_on(work->store, &name);
		else if (entry)
			match_read_on(work->store, work->space, entry);
	}
}

static void get_batch(struct get_work *work)
{
	cairn *store = work->store;
	work->read_on = 0;
	if (!work->call->asked)
		peer_ask_items(store, work->space, work->items, work->n, work->call);
	size_t next = 0; /* all before it are begun; a batch larger than memory streams through it */
	for (size_t i = 0; i < work->n; i++) {
		uint64_t patience = clock_mono_ns(store->clock) + GET_PATIENCE_NS;
		if (work->call->deadline_ns < patience)
			patience = work->call->deadline_ns;
		for (;;) {
			for (; next < work->n; next++) {
				get_begin(work, next);
				if (work->step[next] == GET_LATER)
					break;
			}
			if (next == work->n)
				read_on(work);
			if (work->step[i] != GET_LATER)
				break;
			/* Nothing of ours is held now: others must let go. */
			struct cairn_item *item = &work->items[i];
			if (item->ret_bytes > memory_part_max(store->memory))
				item->status = err_set(CAIRN_E_SIZE, "get: a part of %llu bytes does not fit the memory tier: raise "
				                       "memory_bytes", (unsigned long long)item->ret_bytes);
			else if (!tenant_never(store, work->space->tenant, item->ret_bytes) && !store_wait(store, patience))
				continue;
			else
				item->status = tenant_refuse(store, work->space->tenant, item->ret_bytes,
				                             patience == work->call->deadline_ns ? CAIRN_E_LATE : CAIRN_E_BUSY, "get");
			work->step[i] = GET_DONE;
			next = i + 1;
			break;
		}
		if (work->step[i] == GET_WAIT)
			get_finish(work, i);
	}
	for (size_t i = 0; i < work->n; i++)
		if (work->items[i].status == CAIRN_MISS)
			count_miss(store, work->space, &work->items[i].key, work->items[i].part);
}

/* The head of the chain is used last, so that its end goes first. */
static void head_last(cairn *store, const struct cairn_space *space, const struct cairn_item *items, size_t n)
{
	for (size_t i = n; i-- > 0;) {
		if (items[i].status != CAIRN_OK)
			continue;
		uint32_t entry = catalog_find(store->catalog, space->number, items[i].key.bytes, items[i].part);
		uint32_t slot = entry ? catalog_at(store->catalog, entry)->slot : 0;
		if (slot && memory_slot(store->memory, slot)->state == MEMORY_READY)
			slot_touch(store, slot);
	}
}

static int get_check(cairn *store, const struct cairn_space *space, const struct cairn_call *given,
                     struct store_call *ret_call)
{
	if (!store || !space || space->store != store)
		return err_set(CAIRN_E_INVAL, "get: no store, or a space of another store");
	if (!space->described && !space->manifest)
		return err_set(CAIRN_E_INVAL, "get: the space is not described");
	return store_call_of(store, given, ret_call);
}

CAIRN_API long cairn_get(cairn *store, const struct cairn_space *space, struct cairn_item *items, size_t nitems,
                         const struct cairn_call *given)
{
	struct store_call call;
	int error = nitems && !items ? err_set(CAIRN_E_INVAL, "get: no items") : get_check(store, space, given, &call);
	for (size_t i = 0; items && i < nitems; i++) {
		items[i].status = error;
		items[i].ret_tier = CAIRN_TIER_NONE;
		items[i].ret_bytes = items[i].ret_check = 0;
	}
	if (error)
		return error;
	if (store->remote) {
		struct cairn_call plain = {.timeout_ms = given ? given->timeout_ms : 0, .background = call.background};
		buffers_use(items, nitems, 1);
		long got = remote_get(store, (struct cairn_space *)(uintptr_t)space, items, nitems, &plain);
		buffers_use(items, nitems, -1);
		return got;
	}
	return store_get(store, space, items, nitems, &call);
}

long store_get(cairn *store, const struct cairn_space *space, struct cairn_item *items, size_t nitems,
               const struct store_call *call)
{
	long good = 0;
	struct get_work work = {.store = store, .space = space, .call = call};
	buffers_use(items, nitems, 1);
	pthread_mutex_lock(&store->lock);
	for (size_t from = 0; from < nitems; from += STORE_BATCH) {
		work.items = items + from;
		work.n = nitems - from < STORE_BATCH ? nitems - from : STORE_BATCH;
		get_batch(&work);
		for (size_t i = 0; i < work.n; i++)
			good += work.items[i].status == CAIRN_OK;
	}
	head_last(store, space, items, nitems);
	pthread_mutex_unlock(&store->lock);
	buffers_use(items, nitems, -1);
	return good;
}

void store_prefetch(cairn *store, const struct cairn_space *space, const cairn_key *keys, size_t nkeys)
{
	static const struct store_call call = {.background = 1, .deadline_ns = UINT64_MAX};
	uint32_t nparts = space->space.desc.nparts ? space->space.desc.nparts : 1;
	struct memory_stat memory;
	memory_stat(store->memory, &memory);
	uint64_t room = memory.capacity_bytes / 4;
	for (size_t i = 0; i < nkeys; i++)
		for (uint32_t part = 0; part < nparts; part++) {
			uint32_t slot, tier;
			uint64_t bytes = 0;
			struct peer_name name = {space, &keys[i], part};
			int32_t status = slot_want(store, &name, &call, &slot, &tier, &bytes);
			if (!status)
				slot_release(store, slot);
			if (status == CAIRN_E_BUSY || bytes > room)
				return; /* head first; what does not fit comes when it is asked for */
			room -= bytes;
		}
}

void store_begin(cairn *store, const struct cairn_space *space, const struct cairn_item *items, size_t n,
                 struct store_call *call)
{
	struct memory_stat memory;
	struct peer_name far = {0};
	uint32_t last = 0;
	pthread_mutex_lock(&store->lock);
	peer_ask_items(store, space, items, n, call);
	call->asked = 1;
	memory_stat(store->memory, &memory);
	uint64_t room = memory.capacity_bytes / 4;
	for (size_t i = 0; i < n && space->described; i++) {
		uint32_t slot, tier;
		uint64_t bytes = 0;
		struct peer_name name = {space, &items[i].key, items[i].part};
		int32_t status = slot_want(store, &name, call, &slot, &tier, &bytes);
		if (!status && tier == CAIRN_TIER_FLASH && memory_slot(store->memory, slot)->entry)
			last = memory_slot(store->memory, slot)->entry;
		if (!status && tier == CAIRN_TIER_PEER)
			far = name;
		if (!status)
			slot_release(store, slot);
		if (status == CAIRN_E_BUSY || bytes > room)
			break;
		room -= bytes;
	}
	if (last && !call->background)
		match_read_on(store, space, last); /* as a get does: what comes next will be asked for */
	if (far.key && !call->background)
		match_fetch_on(store, &far);
	pthread_mutex_unlock(&store->lock);
}

/* ---- leases ------------------------------------------------------------------------------------------------------ */

struct cairn_lease {
	uint32_t slot;
	uint32_t tier;
	uint64_t bytes;
	uint32_t tenant;
	const void *address;
	uint64_t check;
	int fd;
	uint64_t fd_offset;
	uint64_t remote; /* the cairnd's number of it, where the store is one's */
};

static int lease_allowed(cairn *store, uint32_t tenant, uint64_t bytes)
{
	uint64_t pool = memory_tenant_bytes(store->memory, tenant);
	struct memory_stat memory;
	memory_stat(store->memory, &memory);
	uint64_t share = pool > memory.capacity_bytes / (store->ntenants ? store->ntenants : 1)
	                     ? pool
	                     : memory.capacity_bytes / (store->ntenants ? store->ntenants : 1);
	uint64_t quota = store->tenants[tenant].limits.memory_quota_bytes;
	share = quota && quota < share ? quota : share;
	return store->tenants[tenant].leased_bytes + bytes <= share / 2;
}

static int lease_remote(cairn *store, const struct cairn_space *space, struct cairn_item *item,
                        const struct cairn_call *given, cairn_lease *lease)
{
	struct cairn_call plain = {.timeout_ms = given ? given->timeout_ms : 0};
	struct cairn_lease_info info;
	lease->remote = 0;
	int error = remote_lease_take(store, (struct cairn_space *)(uintptr_t)space, item, &plain, &info, &lease->remote);
	if (!error) {
		lease->address = info.address;
		lease->bytes = info.bytes;
		lease->check = info.check;
		lease->tier = info.tier;
		lease->fd = info.fd;
		lease->fd_offset = info.fd_offset;
	}
	return error;
}

CAIRN_API int cairn_lease_take(cairn *store, const struct cairn_space *space, struct cairn_item *item,
                               const struct cairn_call *given, cairn_lease **ret_lease)
{
	struct store_call call;
	int error = !item || !ret_lease ? err_set(CAIRN_E_INVAL, "lease: no item or no place for the result")
	                                : get_check(store, space, given, &call);
	if (error)
		return error;
	if (!store->remote)
		return store_lease_take(store, space, item, &call, UINT64_MAX, ret_lease);
	cairn_lease *lease = mem_alloc(sizeof(*lease));
	if (!lease)
		return item->status = err_set(CAIRN_E_NOMEM, "no memory for a lease");
	item->ret_bytes = item->ret_check = 0;
	item->ret_tier = CAIRN_TIER_NONE;
	error = lease_remote(store, space, item, given, lease);
	if (error)
		mem_free(lease);
	else
		*ret_lease = lease;
	return error;
}

/* Under the lock: a slot with a ref whose bytes are here. */
static int32_t lease_slot(cairn *store, const struct cairn_space *space, struct cairn_item *item,
                          const struct store_call *call, uint64_t room, uint32_t *ret_slot, uint32_t *ret_tier)
{
	struct peer_name name = {space, &item->key, item->part};
	uint64_t bytes = 0;
	if (!call->asked)
		peer_ask_items(store, space, item, 1, call);
	for (;;) {
		int32_t status = slot_want(store, &name, call, ret_slot, ret_tier, &bytes);
		item->ret_bytes = bytes;
		if (status)
			return status;
		if (bytes > room) {
			slot_release(store, *ret_slot);
			return err_set(CAIRN_E_SIZE, "get: the part has %llu bytes, the buffers %llu", (unsigned long long)bytes,
			               (unsigned long long)room);
		}
		if (!lease_allowed(store, space->tenant, bytes)) {
			slot_release(store, *ret_slot);
			return err_set(CAIRN_E_BUSY,
			               "lease: half of the tenant's memory is leased already: release some, or use get");
		}
		status = slot_await(store, &name, *ret_slot, *ret_tier, call->deadline_ns);
		if (status == CAIRN_E_LATE)
			return err_set(CAIRN_E_LATE, "lease: not here in time");
		if (status != CAIRN_MISS || *ret_tier != CAIRN_TIER_PEER)
			return status;
	}
}

int store_lease_take(cairn *store, const struct cairn_space *space, struct cairn_item *item,
                     const struct store_call *call, uint64_t room, cairn_lease **ret_lease)
{
	cairn_lease *lease = mem_alloc(sizeof(*lease));
	if (!lease)
		return item->status = err_set(CAIRN_E_NOMEM, "no memory for a lease");
	item->ret_bytes = item->ret_check = 0;
	item->ret_tier = CAIRN_TIER_NONE;
	uint32_t slot, tier = 0;
	pthread_mutex_lock(&store->lock);
	int32_t status = lease_slot(store, space, item, call, room, &slot, &tier);
	if (!status) {
		struct memory_slot *s = memory_slot(store->memory, slot);
		uint64_t bytes = item->ret_bytes;
		*lease = (cairn_lease){.slot = slot, .tier = tier, .bytes = bytes, .tenant = space->tenant,
		                       .address = memory_address(store->memory, slot), .check = s->raw_check};
		memory_place(store->memory, slot, &lease->fd, &lease->fd_offset);
		store->leased_bytes += bytes;
		store->tenants[space->tenant].leased_bytes += bytes;
		item->ret_tier = tier;
		item->ret_check = s->raw_check;
		s->far = 0;
		count_hit(store, space, tier, bytes);
		use_count(store, slot);
		if (tier == CAIRN_TIER_PEER)
			peer_link(store, &(struct peer_name){space, &item->key, item->part});
		if (s->entry)
			slot_recent(store, slot);
	}
	if (status == CAIRN_MISS)
		count_miss(store, space, &item->key, item->part);
	pthread_mutex_unlock(&store->lock);
	item->status = status;
	if (status)
		mem_free(lease);
	else
		*ret_lease = lease;
	return status;
}

CAIRN_API void cairn_lease_get_info(const cairn_lease *lease, struct cairn_lease_info *ret_info)
{
	*ret_info = (struct cairn_lease_info){.address = lease->address, .bytes = lease->bytes, .check = lease->check,
	                                      .tier = lease->tier, .fd = lease->fd, .fd_offset = lease->fd_offset};
}

CAIRN_API void cairn_lease_release(cairn *store, cairn_lease *lease)
{
	if (!lease)
		return;
	if (store->remote) {
		if (lease->fd < 0)
			mem_free((void *)(uintptr_t)lease->address); /* its own copy */
		else
			remote_lease_release(store, lease->remote, lease->fd);
		mem_free(lease);
		return;
	}
	pthread_mutex_lock(&store->lock);
	store->leased_bytes -= lease->bytes;
	store->tenants[lease->tenant].leased_bytes -= lease->bytes;
	slot_release(store, lease->slot);
	pthread_mutex_unlock(&store->lock);
	mem_free(lease);
}
