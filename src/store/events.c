/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events for those who route requests to where the bytes are: what came and went, in order, with the engine's own hash
 * where it was given; and all that is there at one moment, to begin with and after a gap.
 *
 * Threads: under the store's lock; a snapshot takes it for some entries at a time. Memory: the ring and the table of
 * hashes, taken at open.
 * Invariant: who takes a snapshot and then all events behind its sequence number knows exactly what is there. What the
 * snapshot shows of a part may be younger than its number, but then an event behind that number says so too.
 */
#include <string.h>

#include "base/digest.h"
#include "base/err.h"
#include "base/mem.h"
#include "store/remote.h"
#include "store/store.h"

/* ---- the engine's hashes ----------------------------------------------------------------------------------------- */

/* By the key's prefix and space, so that a wrong one can not be told; 4 to a bucket, the one given longest ago goes
 * first, and one whose block is gone before all others. */
struct hash_cell {
	uint8_t prefix[16];
	uint16_t space;
	uint8_t length; /* 0: free */
	uint8_t gone;
	uint32_t stamp;
	uint8_t hash[CAIRN_HASH_MAX];
};
_Static_assert(sizeof(struct hash_cell) == 56, "what cairn.h says it costs");
enum {
	HASH_WAYS = 4
};

static struct hash_cell *bucket_of(const cairn *store, uint32_t space, const uint8_t prefix[16])
{
	uint64_t bits;
	memcpy(&bits, prefix, sizeof(bits)); /* keys are digests */
	bits ^= (uint64_t)space * 0x9e3779b97f4a7c15ull;
	return store->hash_buckets ? &store->hashes[(bits % store->hash_buckets) * HASH_WAYS] : NULL;
}

static struct hash_cell *hash_find(const cairn *store, uint32_t space, const uint8_t prefix[16])
{
	struct hash_cell *bucket = bucket_of(store, space, prefix);
	for (int i = 0; bucket && i < HASH_WAYS; i++)
		if (bucket[i].length && bucket[i].space == space && !memcmp(bucket[i].prefix, prefix, 16))
			return &bucket[i];
	return NULL;
}

static void hash_keep(cairn *store, uint32_t space, const struct cairn_item *item)
{
	struct hash_cell *bucket = bucket_of(store, space, item->key.bytes);
	struct hash_cell *cell = hash_find(store, space, item->key.bytes);
	for (int i = 0; i < HASH_WAYS && !cell; i++)
		if (!bucket[i].length)
			cell = &bucket[i];
	if (!cell)
		cell = bucket;
	for (int i = 0;
	     i < HASH_WAYS && cell->length && (cell->space != space || memcmp(cell->prefix, item->key.bytes, 16)); i++) {
		const struct hash_cell *other = &bucket[i];
		if (other->gone > cell->gone || (other->gone == cell->gone && (int32_t)(other->stamp - cell->stamp) < 0))
			cell = &bucket[i];
	}
	memcpy(cell->prefix, item->key.bytes, 16);
	cell->space = (uint16_t)space;
	cell->gone = 0;
	cell->stamp = ++store->hash_stamp;
	cell->length = (uint8_t)item->engine_hash_bytes;
	memset(cell->hash, 0, sizeof(cell->hash));
	memcpy(cell->hash, item->engine_hash, item->engine_hash_bytes);
}

int events_keep_hashes(cairn *store, const struct cairn_space *space, const struct cairn_item *items, size_t n)
{
	int some = 0;
	for (size_t i = 0; i < n; i++) {
		if (items[i].engine_hash_bytes > CAIRN_HASH_MAX || (items[i].engine_hash_bytes && !items[i].engine_hash))
			return err_set(CAIRN_E_INVAL, "put: an engine's hash has at most %d bytes", CAIRN_HASH_MAX);
		some |= items[i].engine_hash_bytes != 0;
	}
	if (!some || !store->hash_buckets)
		return 0;
	pthread_mutex_lock(&store->lock);
	for (size_t i = 0; i < n; i++)
		if (items[i].engine_hash_bytes)
			hash_keep(store, space->number, &items[i]);
	pthread_mutex_unlock(&store->lock);
	return 0;
}

static uint32_t hash_copy(const cairn *store, const struct catalog_entry *e, uint8_t ret_hash[CAIRN_HASH_MAX])
{
	const struct hash_cell *cell = hash_find(store, e->space, e->prefix);
	if (!cell)
		return 0;
	memcpy(ret_hash, cell->hash, CAIRN_HASH_MAX);
	return cell->length;
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

int events_open(cairn *store, const struct cairn_options *options)
{
	while (!store->life)
		digest_random(&store->life, sizeof(store->life));
	store->life &= INT64_MAX; /* numbers in JSON have a sign */
	store->events = mem_array(STORE_EVENTS, sizeof(*store->events));
	store->hash_buckets = options->event_hashes_bytes / (HASH_WAYS * sizeof(struct hash_cell));
	if (store->hash_buckets)
		store->hashes = mem_table(store->hash_buckets * HASH_WAYS, sizeof(struct hash_cell));
	if (store->events && (store->hashes || !store->hash_buckets))
		return 0;
	store->hash_buckets = 0;
	return CAIRN_E_NOMEM;
}

void events_done(cairn *store)
{
	mem_free(store->events);
	mem_free(store->hashes);
}

void entry_event(cairn *store, const struct catalog_entry *e, uint32_t kind, uint32_t tier, uint32_t reason)
{
	const struct cairn_space *space = store->spaces[e->space - 1];
	count_presence(store, e, kind, tier, reason);
	if (space->internal)
		return;
	uint64_t sequence = ++store->event_last;
	struct cairn_event *event = &store->events[sequence % STORE_EVENTS];
	memset(event, 0, sizeof(*event));
	event->sequence = sequence;
	event->life = store->life;
	event->kind = kind;
	event->tier = tier;
	event->reason = reason;
	event->part = e->part;
	event->birth = catalog_birth(e);
	memcpy(event->space_id.bytes, space->id, 32);
	memcpy(event->key_prefix, e->prefix, 16);
	event->hash_bytes = hash_copy(store, e, event->engine_hash);
}

void events_gone(cairn *store, const struct catalog_entry *e)
{
	struct hash_cell *cell = hash_find(store, e->space, e->prefix);
	if (cell)
		cell->gone = 1;
}

CAIRN_API long cairn_events(cairn *store, uint64_t after, struct cairn_event *events, size_t max)
{
	if (!store || (max && !events))
		return err_set(CAIRN_E_INVAL, "events: no store or no place for the result");
	if (store->remote)
		return remote_events(store, after, events, max);
	pthread_mutex_lock(&store->lock);
	if (after > store->event_last)
		after = 0; /* a number of another life: what comes now says so */
	uint64_t oldest = store->event_last > STORE_EVENTS ? store->event_last - STORE_EVENTS + 1 : 1;
	uint64_t sequence = after + 1 < oldest ? oldest : after + 1;
	long n = 0;
	for (; sequence <= store->event_last && (size_t)n < max; sequence++)
		events[n++] = store->events[sequence % STORE_EVENTS];
	pthread_mutex_unlock(&store->lock);
	return n;
}

/* ---- what is there ----------------------------------------------------------------------------------------------- */

static int present_fill(cairn *store, uint32_t entry, struct cairn_present *ret)
{
	const struct catalog_entry *e = catalog_at(store->catalog, entry);
	const struct cairn_space *space = store->spaces[e->space - 1];
	int memory = e->slot && memory_slot(store->memory, e->slot)->state == MEMORY_READY;
	uint32_t tiers = (memory ? 1u << CAIRN_TIER_MEMORY : 0) | (e->flags & CATALOG_FLASH ? 1u << CAIRN_TIER_FLASH : 0);
	if (!tiers || space->internal)
		return 0;
	*ret = (struct cairn_present){
		.size = sizeof(*ret), .tiers = tiers, .part = e->part, .bytes = e->length, .birth = catalog_birth(e)};
	memcpy(ret->space_id.bytes, space->id, 32);
	memcpy(ret->key_prefix, e->prefix, 16);
	ret->hash_bytes = hash_copy(store, e, ret->engine_hash);
	return 1;
}

CAIRN_API long cairn_snapshot(cairn *store, uint64_t *ret_sequence, uint64_t *ret_life,
                              int (*each)(void *arg, const struct cairn_present *present), void *arg)
{
	enum {
		AT_ONCE = 128,
		STEPS = 4096 /* a catalog that has been full may have holes for longer than others should wait */
	};
	struct cairn_present some[AT_ONCE];
	long calls = 0;
	int stop = 0;
	if (!store || !ret_sequence || !ret_life || !each)
		return err_set(CAIRN_E_INVAL, "snapshot: no store, no callback or no place for the result");
	if (store->remote)
		return remote_snapshot(store, ret_sequence, ret_life, each, arg);
	pthread_mutex_lock(&store->lock);
	*ret_sequence = store->event_last;
	*ret_life = store->life;
	for (uint32_t at = 0; !stop;) {
		uint32_t n = 0, steps = STEPS, entry = 0;
		while (n < AT_ONCE && (entry = catalog_next_within(store->catalog, at, &steps, &at)))
			n += (uint32_t)present_fill(store, entry, &some[n]);
		pthread_mutex_unlock(&store->lock);
		for (uint32_t i = 0; i < n && !stop; i++, calls++)
			stop = each(arg, &some[i]);
		stop |= !entry && steps;
		pthread_mutex_lock(&store->lock);
	}
	pthread_mutex_unlock(&store->lock);
	return calls;
}
