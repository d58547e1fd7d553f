/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Before a store ends: what is in memory alone goes to flash, as much as there is time for, so that the next one does
 * not begin cold. The most valuable first, by the policy's index, and no block before those that come before it in its
 * chain: half a chain without its head is worth nothing.
 *
 * Threads: the one that ends the store, while no call is in progress; loops run. Memory: a list of the parts, while it
 * works. Invariant: what is in flash of it afterwards is the beginning of that list, device by device.
 */
#include <stdlib.h>

#include "base/check.h"
#include "base/err.h"
#include "base/mem.h"
#include "policy/index.h"
#include "store/leave.h"

/* Bytes on their way at once: they are all waited for, also when the time is over. */
#define LEAVE_AHEAD_BYTES (32ull << 20)
enum {
	LEAVE_FAILURES = 64
}; /* of writes, one device's or more: then it is of no use */

struct leaver {
	uint32_t entry;
	uint32_t used; /* of those worth the same the youngest first */
	double worth;
	uint64_t birth;
};

/* In memory alone, and to return. */
static const struct catalog_entry *leaver_of(cairn *store, uint32_t slot)
{
	const struct memory_slot *s = memory_slot(store->memory, slot);
	if (s->state != MEMORY_READY || !s->entry || s->dirty || s->list == MEMORY_CLOSED)
		return NULL;
	const struct catalog_entry *e = catalog_at(store->catalog, s->entry);
	return e->flags & (CATALOG_FLASH | CATALOG_GHOST | CATALOG_TAIL | CATALOG_CLOSED | CATALOG_MANIFEST) ? NULL : e;
}

/* Expected hits per second and byte. What was on its way out is worth least. */
static double worth_of(const cairn *store, const struct memory_slot *s, uint32_t now)
{
	int32_t age = (int32_t)(now - s->used);
	if (s->list >= INDEX_CLASSES)
		return -1;
	return store->watch.table.index[s->list][index_bucket((age > 0 ? age : 0) / WATCH_UNITS_S)] / s->length;
}

static int leaver_order(const void *a, const void *b)
{
	const struct leaver *x = a, *y = b;
	if (x->worth != y->worth)
		return x->worth < y->worth ? 1 : -1;
	if (x->used != y->used)
		return x->used < y->used ? 1 : -1;
	return x->birth < y->birth ? -1 : x->birth > y->birth; /* a chain in its own order */
}

/* All of them, best first. NULL: none, or no memory for the list. */
static struct leaver *leavers_list(cairn *store, uint32_t *ret_n)
{
	uint32_t now = watch_now(store), slot = 0, n = 0;
	while ((slot = memory_slot_after(store->memory, slot)))
		n += leaver_of(store, slot) != NULL;
	struct leaver *list = n ? mem_array(n, sizeof(*list)) : NULL;
	*ret_n = n;
	if (!list)
		return NULL;
	n = 0;
	while ((slot = memory_slot_after(store->memory, slot))) {
		const struct catalog_entry *e = leaver_of(store, slot);
		const struct memory_slot *s = memory_slot(store->memory, slot);
		if (e)
			list[n++] = (struct leaver){s->entry, s->used, worth_of(store, s, now), catalog_birth(e)};
	}
	qsort(list, n, sizeof(*list), leaver_order);
	return list;
}

struct leave_work {
	cairn *store;
	const struct leave_limit *limit;
	struct leave_report *report;
	uint64_t ahead;
	uint32_t failures;
};

static int over(const struct leave_work *work)
{
	return clock_mono_ns(work->store->clock) >= work->limit->deadline_ns ||
	       (work->limit->enough && work->limit->enough(work->limit->arg));
}

/* Until one more may be on its way. 0; 1: the time is over. */
static int turn_wait(const struct leave_work *work)
{
	cairn *store = work->store;
	while (!over(work)) {
		if (store->dirty_bytes < work->ahead && !list_empty(&store->reqs_free))
			return 0;
		/* Not longer than until it is to be asked again whether it is enough. */
		(void)store_wait(store, clock_mono_ns(store->clock) + 50000000);
	}
	return 1;
}

/* One part, after those before it. 0; 1: the time is over; or an error. */
static int leave_one(struct leave_work *work, uint32_t entry)
{
	static const struct store_call call = {.deadline_ns = UINT64_MAX};
	cairn *store = work->store;
	uint32_t list[DOWN_LIST];
	for (uint32_t n; (n = down_list(store, entry, list));) {
		if (turn_wait(work))
			return 1;
		int failed = store->sync_error; /* tried again, elsewhere perhaps */
		store->sync_error = 0;
		if (failed && ++work->failures == LEAVE_FAILURES)
			return failed;
		n = down_list(store, entry, list);
		uint64_t before = store->dirty_bytes;
		for (uint32_t i = 0; i < n && store->dirty_bytes < before + work->ahead; i++) {
			int error = down_part(store, list[i], &call);
			if (error == CAIRN_E_BUSY)
				break;
			if (error)
				return error;
		}
		work->report->bytes += store->dirty_bytes - before;
	}
	return 0;
}

int store_leave(cairn *store, const struct leave_limit *limit, struct leave_report *ret_report)
{
	struct leave_work work = {store, limit, ret_report, store->dirty_max / 4, 0};
	work.ahead = work.ahead < LEAVE_AHEAD_BYTES ? work.ahead : LEAVE_AHEAD_BYTES;
	uint32_t n, done = 0;
	int error = 0;
	*ret_report = (struct leave_report){0};
	if (store->remote || store->flags & CAIRN_OPEN_READONLY)
		return 0;
	pthread_mutex_lock(&store->lock);
	store->leaving = 1;
	if (store_has_flash(store)) {
		struct leaver *list = leavers_list(store, &n);
		if (n && !list)
			error = err_set(CAIRN_E_NOMEM, "no memory for a list of %u parts to write", n);
		for (; list && done < n && !error; done += !error)
			error = leave_one(&work, list[done].entry);
		ret_report->parts = done;
		ret_report->left = n - done;
		mem_free(list);
	}
	pthread_mutex_unlock(&store->lock);
	return error < 0 ? err_set(error, "what is in memory alone could not be written: %s", cairn_status_text(error)) : 0;
}
