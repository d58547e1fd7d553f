/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parts on their way from peers. See peer.h.
 *
 * A fetch has a slot that no catalog entry names yet: puts of the same key go on as if it were not there, and a drop
 * has nothing to take back. When its bytes are here, and good, it becomes an entry like one that was put with
 * durability none; if the key was put meanwhile, that one stays, and the slot serves those who wait for it.
 * A fetch that takes too long is given up: its slot is FAILED for those who wait, and stays the worker's until that has
 * let go of it.
 */
#include <string.h>

#include "base/check.h"
#include "base/err.h"
#include "base/mem.h"
#include "fmt/gone.h"
#include "store/peer.h"
#include "store/remote.h"

/* ---- the table --------------------------------------------------------------------------------------------------- */

static struct peer_fetch *fetch_find(struct peers *peers, const struct peer_name *name)
{
	struct list *bucket = &peers->buckets[name->key->bytes[0] % PEER_BUCKETS];
	for (struct list *node = bucket->next; node != bucket; node = node->next) {
		struct peer_fetch *fetch = LIST_OF(node, struct peer_fetch, bucket);
		if (fetch->space == name->space && fetch->part == name->part && !memcmp(fetch->key.bytes, name->key->bytes, 32))
			return fetch;
	}
	return NULL;
}

/* Nobody finds it any more. */
static void fetch_hide(struct peer_fetch *fetch)
{
	if (list_linked(&fetch->bucket))
		list_remove(&fetch->bucket);
}

void peer_fetch_drop(struct peers *peers, struct peer_fetch *fetch)
{
	cairn *store = peers->store;
	struct memory_slot *s = memory_slot(store->memory, fetch->slot);
	fetch_hide(fetch);
	if (s->state == MEMORY_FILLING) {
		s->state = MEMORY_FAILED;
		s->error = CAIRN_MISS;
	}
	slot_release(store, fetch->slot);
	fetch->state = FETCH_FREE;
	list_push_back(&peers->fetches_free, &fetch->link);
}

/* ---- beginning --------------------------------------------------------------------------------------------------- */

/* Who should be fastest of those that have it; NULL: none that is well. */
static struct peer *fetch_from(cairn *store, const struct peer_cell *cell, double *ret_s)
{
	struct peer *best = NULL;
	for (int i = 0; i < PEER_HOLDERS && cell->holders[i].peer; i++) {
		struct peer *peer = &store->peers->peer[cell->holders[i].peer - 1];
		double seconds = peer_seconds(peer, cell->holders[i].tier, cell->length);
		if (peer_shut(peer) || (best && seconds >= *ret_s))
			continue;
		best = peer;
		*ret_s = seconds;
	}
	return best;
}

int peer_dropped(cairn *store, const struct peer_name *name)
{
	struct catalog_memory memory;
	catalog_recall(store->catalog, gone_print(name->space->id, name->key->bytes, name->part), &memory);
	return memory.reason == CAIRN_WHY_DROPPED;
}

/* Begins a fetch; older_than: see slot_take. */
static int32_t fetch_begin(cairn *store, const struct peer_name *name, const uint32_t *older_than,
                           struct peer_fetch **ret_fetch, uint64_t *ret_bytes)
{
	struct peers *peers = store->peers;
	const struct peer_cell *cell = peer_cell(store, name);
	double seconds = 0;
	struct peer *peer = cell && !peer_dropped(store, name) ? fetch_from(store, cell, &seconds) : NULL;
	if (!peer || cell->length > store->part_max || !peer_wake(peer, 0))
		return CAIRN_MISS;
	*ret_bytes = cell->length;
	uint32_t slot =
		list_empty(&peers->fetches_free) ? 0 : slot_take(store, name->space->tenant, cell->length, older_than);
	if (!slot)
		return CAIRN_E_BUSY;
	uint64_t now = clock_mono_ns(store->clock);
	double patience = 4 * seconds * 1e9 + (double)PEER_PATIENCE_NS;
	struct peer_fetch *fetch = LIST_OF(list_pop_front(&peers->fetches_free), struct peer_fetch, link);
	*fetch = (struct peer_fetch){
		.space = name->space,
		.key = *name->key,
		.check = cell->check,
		.until_ns = now + (patience < (double)PEER_PATIENCE_MAX_NS ? (uint64_t)patience : PEER_PATIENCE_MAX_NS),
		.slot = slot,
		.length = cell->length,
		.state = FETCH_WAITING,
		.part = (uint8_t)name->part,
		.peer = (uint8_t)peer->number,
		.tail = cell->tail,
		.ahead = older_than != NULL,
	};
	memcpy(fetch->parent, cell->parent, 16);
	list_push_back(&peers->buckets[fetch->key.bytes[0] % PEER_BUCKETS], &fetch->bucket);
	list_push_back(fetch->ahead ? &peer->ahead : &peer->fetches, &fetch->link);
	rate_begin(&peer->rate, fetch->length, now);
	memcpy(memory_slot(store->memory, slot)->key_rest, name->key->bytes + 16, 16);
	*ret_fetch = fetch;
	return CAIRN_OK;
}

int32_t peer_want(cairn *store, const struct peer_name *name, uint32_t *ret_slot, uint64_t *ret_bytes)
{
	struct peer_fetch *fetch = fetch_find(store->peers, name);
	if (!fetch) {
		int32_t status = fetch_begin(store, name, NULL, &fetch, ret_bytes);
		if (status)
			return status;
	}
	struct memory_slot *s = memory_slot(store->memory, fetch->slot);
	*ret_bytes = fetch->length;
	if (s->refs == UINT16_MAX)
		return CAIRN_E_BUSY;
	if (fetch->ahead && fetch->state == FETCH_WAITING) {
		list_remove(&fetch->link);
		list_push_back(&store->peers->peer[fetch->peer].fetches, &fetch->link);
	}
	fetch->ahead = 0;
	s->refs++; /* the caller's; the first is the fetch's */
	*ret_slot = fetch->slot;
	return CAIRN_OK;
}

int peer_ahead(cairn *store, const struct peer_name *name, uint32_t since)
{
	uint32_t entry = catalog_find(store->catalog, name->space->number, name->key->bytes, name->part);
	struct peer_fetch *fetch = fetch_find(store->peers, name);
	uint64_t bytes;
	if (fetch || (entry && !(catalog_at(store->catalog, entry)->flags & CATALOG_GHOST)))
		return 1;
	return fetch_begin(store, name, &since, &fetch, &bytes) != CAIRN_E_BUSY;
}

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

/* It takes too long: those who wait go on without it, and its worker is cut where it has begun. */
static void fetch_give_up(cairn *store, struct peer_fetch *fetch)
{
	struct peers *peers = store->peers;
	struct peer *peer = &peers->peer[fetch->peer];
	struct memory_slot *s = memory_slot(store->memory, fetch->slot);
	struct peer_name name = {fetch->space, &fetch->key, fetch->part};
	struct peer_cell *cell = peer_cell(store, &name);
	if (cell)
		peer_cell_not(cell, fetch->peer);
	peer->late++;
	s->state = MEMORY_FAILED;
	s->error = CAIRN_MISS;
	fetch_hide(fetch);
	if (fetch->state == FETCH_WAITING) {
		list_remove(&fetch->link);
		rate_end(&peer->rate, fetch->length, 0, clock_mono_ns(store->clock));
		peer_fetch_drop(peers, fetch);
	}
	store_changed(store);
}

int peer_await(cairn *store, const struct peer_name *name, uint32_t slot, uint64_t deadline_ns)
{
	struct memory_slot *s = memory_slot(store->memory, slot);
	while (s->state == MEMORY_FILLING) {
		struct peer_fetch *fetch = fetch_find(store->peers, name);
		check(fetch && fetch->slot == slot);
		uint64_t until = fetch->until_ns < deadline_ns ? fetch->until_ns : deadline_ns;
		if (!store_wait(store, until))
			continue;
		if (s->state != MEMORY_FILLING)
			break;
		if (until == deadline_ns)
			return CAIRN_E_LATE;
		fetch_give_up(store, fetch_find(store->peers, name));
	}
	return 0;
}

/* ---- what has come ----------------------------------------------------------------------------------------------- */

/* On to flash, as a put of durability none without a write budget does; with one it goes when it leaves memory. */
static void fetch_down(cairn *store, const struct peer_fetch *fetch, uint32_t entry)
{
	static const struct store_call background = {.background = 1, .durability = CAIRN_DURABLE_NONE};
	const struct catalog_entry *e = catalog_at(store->catalog, entry);
	if (down_budgeted(store) || !store_has_flash(store) || (store->flags & CAIRN_OPEN_READONLY) ||
	    (e->flags & (CATALOG_TAIL | CATALOG_CLOSED)) || e->length > store->part_max ||
	    store->dirty_bytes + e->length > store->dirty_max / 2 || list_empty(&store->reqs_free))
		return;
	(void)write_start(store, fetch->space, entry, fetch->key.bytes, 0, &background, NULL);
}

static void fetch_publish(cairn *store, struct peer_fetch *fetch, uint64_t raw_check)
{
	struct memory_slot *s = memory_slot(store->memory, fetch->slot);
	uint32_t number = fetch->space->number;
	s->raw_check = raw_check;
	s->state = MEMORY_READY;
	s->far = 1;
	uint32_t entry = catalog_find(store->catalog, number, fetch->key.bytes, fetch->part);
	if (entry && !(catalog_at(store->catalog, entry)->flags & CATALOG_GHOST))
		return; /* put meanwhile */
	entry = entry_insert(store, number, fetch->key.bytes, fetch->part);
	if (!entry)
		return; /* the catalog is full: for those who wait alone */
	struct catalog_entry *e = catalog_at(store->catalog, entry);
	e->slot = fetch->slot;
	e->length = fetch->length;
	e->flags = fetch->tail ? CATALOG_TAIL : 0;
	e->used = (uint16_t)store->tick;
	catalog_set_birth(e, store->next_birth++);
	catalog_set_check(e, fetch->check);
	s->entry = entry;
	entry_count_first(store, entry);
	uint32_t parent = catalog_find_any(store->catalog, number, fetch->parent);
	if (parent && !(catalog_at(store->catalog, parent)->flags & CATALOG_GHOST))
		catalog_set_parent(store->catalog, entry, parent);
	slot_recent(store, fetch->slot);
	entry_tick(store, e->length);
	entry_event(store, e, CAIRN_EVENT_STORED, CAIRN_TIER_MEMORY, 0);
	fetch_down(store, fetch, entry);
}

void peer_link(cairn *store, const struct peer_name *name)
{
	const struct peer_cell *cell = peer_cell(store, name);
	uint32_t entry = cell ? catalog_find(store->catalog, name->space->number, name->key->bytes, name->part) : 0;
	if (!entry || catalog_at(store->catalog, entry)->parent)
		return;
	uint32_t parent = catalog_find_any(store->catalog, name->space->number, cell->parent);
	if (parent && parent != entry && !(catalog_at(store->catalog, parent)->flags & CATALOG_GHOST))
		catalog_set_parent(store->catalog, entry, parent);
}

/* ---- a worker's batch -------------------------------------------------------------------------------------------- */

struct fetch_batch {
	uint32_t n;
	struct peer_fetch *fetches[PEER_BATCH];
	struct cairn_item items[PEER_BATCH];
	struct cairn_buf bufs[PEER_BATCH];
};

/* What waits at the peer, of one space, as much as one request takes; what somebody waits for first. */
static uint64_t batch_take(struct peer *peer, struct fetch_batch *batch)
{
	cairn *store = peer->store;
	uint64_t bytes = 0, until = 0;
	batch->n = 0;
	while (batch->n < PEER_BATCH) {
		const struct list *from = list_empty(&peer->fetches) ? &peer->ahead : &peer->fetches;
		if (list_empty(from))
			break;
		struct peer_fetch *fetch = LIST_OF(from->next, struct peer_fetch, link);
		if (batch->n && (fetch->space != batch->fetches[0]->space || bytes + fetch->length > PEER_BATCH_BYTES))
			break;
		list_remove(&fetch->link);
		fetch->state = FETCH_RUNNING;
		bytes += fetch->length;
		until = fetch->until_ns > until ? fetch->until_ns : until;
		batch->bufs[batch->n] = cairn_buf_of(memory_address(store->memory, fetch->slot), fetch->length);
		batch->items[batch->n] =
			(struct cairn_item){.key = fetch->key, .bufs = &batch->bufs[batch->n], .nbufs = 1, .part = fetch->part};
		batch->fetches[batch->n++] = fetch;
	}
	return until;
}

/* The space as the peer's client knows it; described to the peer without costs: those are its engines' to say. */
static cairn_space *space_there(cairn *client, const struct cairn_space *space)
{
	struct cairn_space_desc desc = space->space.desc;
	cairn_space *there = store_space_by_id(client, space->id, 0);
	desc.size = sizeof(desc);
	desc.cost_a_s = desc.cost_b_s = 0;
	return there && there->described ? there : cairn_describe(client, &desc, &there) ? NULL : there;
}

/* Takes in, or counts, what came of one part. The lock is held. Whether the peer is to blame for more than a miss. */
static int fetch_end(struct peer *peer, struct peer_fetch *fetch, const struct cairn_item *item)
{
	cairn *store = peer->store;
	struct cairn_tier_stat *stat = &store->stat.tier[CAIRN_TIER_PEER];
	int32_t status = item->status;
	int given_up = !list_linked(&fetch->bucket);
	if (!status && item->ret_bytes != fetch->length)
		status = CAIRN_MISS;
	/* Bytes and their checksum agree. That they are this part's is what the announced check proves. */
	if (!status && segment_stored_check(fetch->key.bytes, fetch->space->id, fetch->part, fetch->length, fetch->length,
	                                    0, item->ret_check) != fetch->check)
		status = CAIRN_DAMAGED;
	rate_end(&peer->rate, fetch->length, status ? 0 : fetch->length, clock_mono_ns(store->clock));
	if (status == CAIRN_DAMAGED) {
		stat->damaged_parts++;
		peer->damaged++;
	} else if (status < 0) {
		stat->errors++;
	}
	if (!status && !given_up) {
		peer->hits++;
		peer->hit_bytes += fetch->length;
		fetch_publish(store, fetch, item->ret_check);
	} else if (!given_up) {
		struct peer_name name = {fetch->space, &fetch->key, fetch->part};
		struct peer_cell *cell = peer_cell(store, &name);
		if (cell)
			peer_cell_not(cell, peer->number);
	}
	peer_fetch_drop(store->peers, fetch);
	return status == CAIRN_E_IO || status == CAIRN_E_LATE || status == CAIRN_E_NOENT || status == CAIRN_DAMAGED ||
	       given_up;
}

void peer_fetch_run(struct peer_worker *worker)
{
	struct peer *peer = worker->peer;
	cairn *store = peer->store;
	struct fetch_batch batch;
	uint64_t until = batch_take(peer, &batch), now = clock_mono_ns(store->clock);
	uint32_t turn = breaker_ask(&peer->breaker, now);
	struct cairn_call call = {.size = sizeof(call), .timeout_ms = 1};
	if (until > now)
		call.timeout_ms = (uint32_t)((until - now) / 1000000) + 1;
	peer_busy(worker, until);
	pthread_mutex_unlock(&store->lock);
	cairn_space *space = turn ? space_there(worker->client, batch.fetches[0]->space) : NULL;
	if (space)
		(void)remote_get(worker->client, space, batch.items, batch.n, &call);
	for (uint32_t i = 0; i < batch.n && !space; i++)
		batch.items[i].status = turn ? CAIRN_E_IO : CAIRN_MISS;
	pthread_mutex_lock(&store->lock);
	peer_idle(worker);
	int ill = 0;
	for (uint32_t i = 0; i < batch.n; i++)
		ill |= fetch_end(peer, batch.fetches[i], &batch.items[i]);
	if (ill && turn) {
		peer->failures++;
		breaker_bad(&peer->breaker, turn, clock_mono_ns(store->clock));
	} else if (turn) {
		breaker_good(&peer->breaker, turn);
	}
	store_changed(store);
}
