/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gets from another server. A batch is asked for in steps of some MiB, of which a few are under way at a time: what is
 * in flight is bounded by what was asked for, not by the sockets' buffers, so that it is still in the cache when it is
 * taken. A large batch goes over several connections where that has been seen to be faster.
 *
 * Threads: the caller's, and for a large batch one more for each further connection, which ends with the call. Memory:
 * the connections'.
 * Invariant: replies are received in the order of their requests, each whole, or the connection is closed.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/err.h"
#include "base/mem.h"
#include "io/thread.h"
#include "store/remote_data.h"

#define FETCH_STEP_BYTES  (2u << 20)   /* of one request, or one part */
#define FETCH_SPLIT_BYTES (4ull << 20) /* what a connection should have to do at least */
enum {
	FETCH_UNDER_WAY = 4, /* requests at a time */
	FETCH_EXPLORE = 32,  /* one large get in so many tries another number of connections */
	FETCH_TEXT = 256,
};

/* ---- one part ---------------------------------------------------------------------------------------------------- */

/* Receives an item's bytes into its buffers, and checks them, unless the caller does: DAMAGED where they are wrong.
 * 0 or -errno. */
static int item_receive(struct link *net, struct cairn_item *item, const struct wire_result *result)
{
	uint64_t left = result->bytes;
	int error = 0, checked = !(item->flags & CAIRN_ITEM_UNCHECKED);
	struct digest_xxh xxh;
	data_item(item, result);
	item->status = data_room(item, result);
	if (item->status)
		return link_skip(net, result->bytes);
	if (checked)
		digest_xxh_init(&xxh, 0);
	for (uint32_t b = 0; b < item->nbufs && left && !error; b++) {
		uint8_t *at = buffer_address(&item->bufs[b]);
		for (uint64_t of = item->bufs[b].length < left ? item->bufs[b].length : left; of && !error;) {
			size_t take = of < TRAVEL_CHUNK || !checked ? of : TRAVEL_CHUNK;
			error = link_receive_bytes(net, at, take);
			if (!error && checked)
				digest_xxh_add(&xxh, at, take);
			at += take;
			of -= take;
			left -= take;
		}
	}
	item->ret_check = checked ? digest_xxh_done(&xxh) : result->check;
	if (!error && item->ret_check == result->check) {
		buffers_fence(item);
		return 0;
	}
	buffers_zero(item);
	item->status = error ? err_set(CAIRN_E_IO, "get: the connection ended in the middle of a part")
	                     : err_set(CAIRN_DAMAGED, "get: the bytes failed their check on their way from the cairnd");
	return error;
}

/* ---- one connection ---------------------------------------------------------------------------------------------- */

struct fetch {
	struct data_work *work;
	struct cairn_item *items;
	uint32_t timeout_ms;
	uint32_t index[WIRE_ITEMS_MAX]; /* of those that are asked for */
	uint8_t again[WIRE_ITEMS_MAX];  /* by place in `index`: it came damaged, once more */
	uint8_t later[WIRE_ITEMS_MAX];  /* and: to be asked for in the next round */
	struct fetch_step {
		uint32_t first, count;
		uint64_t id;
	} steps[FETCH_UNDER_WAY];
	uint32_t nsteps;
	int told_later; /* in this round: too much was under way at the daemon */
};

/* Asks for the next of `n` items from `first` on. The first request of a round names the others too: what of them is in
 * flash is on its way while the first ones travel. 0 or an error. */
static int step_send(struct fetch *fetch, uint32_t first, uint32_t n)
{
	struct data_work *work = fetch->work;
	struct wire_batch *batch = &work->request.u.batch;
	struct fetch_step *step = &fetch->steps[fetch->nsteps];
	uint64_t bytes = 0;
	*step = (struct fetch_step){.first = first};
	batch->nitems = 0;
	for (uint32_t i = first; i < n; i++) {
		struct wire_item *to = &batch->items[batch->nitems];
		uint64_t room = 0;
		(void)buffers_check(&fetch->items[fetch->index[i]], &room);
		int now = i == first || (step->count == i - first && bytes + room <= FETCH_STEP_BYTES);
		if (!now && first)
			break;
		remote_item_name(&fetch->items[fetch->index[i]], to);
		to->length = room;
		to->flags &= ~(WIRE_ITEM_CHECK | WIRE_ITEM_SOON);
		to->flags |= (fetch->again[i] ? WIRE_ITEM_CHECK : 0) | (now ? 0 : WIRE_ITEM_SOON);
		bytes += now ? room : 0;
		step->count += (uint32_t)now;
		batch->nitems++;
	}
	int error = remote_send(work->link, &work->request, data_time_left(work, fetch->timeout_ms), 0);
	if (error) {
		work->broken = 1;
		return remote_lost(work->remote, work->link, error);
	}
	step->id = work->link->next_id;
	fetch->nsteps++;
	return 0;
}

/* Receives what the oldest request asked for. 0 or an error. */
static int step_receive(struct fetch *fetch)
{
	struct data_work *work = fetch->work;
	struct fetch_step step = fetch->steps[0];
	fetch->nsteps--;
	memmove(&fetch->steps[0], &fetch->steps[1], fetch->nsteps * sizeof(step));
	int error = remote_receive_of(work->remote, work->link, step.id, &work->reply);
	if (!error)
		error = data_results(work, step.count);
	else
		work->broken = 1;
	fetch->told_later |= !work->broken && (work->reply.head.flags & WIRE_LATER);
	work->broken |= error && fetch->nsteps; /* of what else was asked for nothing is wanted any more */
	for (uint32_t i = 0; i < step.count && !error; i++) {
		uint32_t at = step.first + i;
		struct cairn_item *item = &fetch->items[fetch->index[at]];
		const struct wire_result *result = &work->results[i];
		if (result->status != CAIRN_OK) {
			data_item(item, result);
		} else if (item_receive(work->link->net, item, result)) {
			work->broken = 1;
			return CAIRN_E_IO;
		}
		if (fetch->again[at] && item->status == CAIRN_MISS)
			item->status = CAIRN_DAMAGED; /* so it was, and has been thrown out */
		int damaged = result->status == CAIRN_OK && item->status == CAIRN_DAMAGED && !fetch->again[at];
		fetch->again[at] |= (uint8_t)damaged;
		fetch->later[at] = result->status == CAIRN_E_BUSY || damaged;
	}
	return error;
}

/* Asks until all are here, or those that are not are refused for good. 0 or an error. */
static int fetch_batch(struct data_work *work, struct cairn_item *items, size_t from, size_t to, uint32_t timeout_ms)
{
	struct fetch fetch = {.work = work, .items = items, .timeout_ms = timeout_ms};
	struct remote_patience patience = {.until_ms = timeout_ms ? work->begun_ms + timeout_ms : 0};
	uint32_t n = data_with_room(items, from, to, fetch.index);
	for (int progress = 1; n && progress;) {
		uint32_t sent = 0, kept = 0;
		while (sent < n || fetch.nsteps) {
			int more = sent < n && fetch.nsteps < FETCH_UNDER_WAY;
			int error = more ? step_send(&fetch, sent, n) : step_receive(&fetch);
			if (error)
				return error;
			sent += more ? fetch.steps[fetch.nsteps - 1].count : 0;
		}
		progress = 0;
		for (uint32_t i = 0; i < n; i++) {
			progress |= !fetch.later[i] || items[fetch.index[i]].status == CAIRN_DAMAGED;
			if (!fetch.later[i])
				continue;
			fetch.index[kept] = fetch.index[i];
			fetch.again[kept++] = fetch.again[i];
		}
		n = kept;
		if (progress)
			patience = (struct remote_patience){.until_ms = patience.until_ms};
		else if (n && fetch.told_later)
			progress = remote_wait(&patience);
		fetch.told_later = 0;
	}
	return 0;
}

/* ---- several ----------------------------------------------------------------------------------------------------- */

struct fetch_share {
	cairn *store;
	struct cairn_space *space;
	struct cairn_item *items;
	size_t n;
	const struct cairn_call *call;
	int error;
	char text[FETCH_TEXT]; /* of a failure in a thread of its own: errors' texts are each thread's */
	pthread_t thread;
};

static void *share_run(void *arg)
{
	struct fetch_share *share = arg;
	struct data_work *work = data_begin(share->store, share->space, WIRE_FETCH, share->call, &share->error);
	if (!work)
		data_fail(share->items, 0, share->n, share->error);
	for (size_t at = 0; work && at < share->n && !share->error;) {
		size_t to = share->n - at < WIRE_ITEMS_MAX ? share->n : at + WIRE_ITEMS_MAX;
		share->error = fetch_batch(work, share->items, at, to, share->call->timeout_ms);
		if (share->error)
			data_fail(share->items, at, share->n, share->error);
		at = to;
	}
	if (work)
		data_end(work);
	return NULL;
}

static void *share_thread(void *arg)
{
	struct fetch_share *share = arg;
	(void)share_run(arg);
	snprintf(share->text, sizeof(share->text), "%s", cairn_error_text());
	return NULL;
}

/* Connections for a get of so many bytes: the number that was fastest so far, or now and then another one. */
static uint32_t streams_of(struct remote *remote, uint64_t bytes, size_t n)
{
	static const uint32_t choices[] = {1, 2, REMOTE_STREAMS};
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	uint32_t best = 1, nchoices = processors >= 8 ? 3 : processors >= 2 ? 2 : 1;
	while (nchoices > 1 && (choices[nchoices - 1] * FETCH_SPLIT_BYTES > bytes || choices[nchoices - 1] > n))
		nchoices--;
	if (nchoices == 1)
		return 1;
	pthread_mutex_lock(&remote->lock);
	struct remote_gauge *gauge = &remote->gauge;
	uint32_t call = gauge->calls++;
	for (uint32_t i = 0; i < nchoices; i++) /* more of them have to be worth it */
		if (gauge->gb_s[choices[i] - 1] > 1.05 * gauge->gb_s[best - 1])
			best = choices[i];
	if (call % FETCH_EXPLORE < nchoices)
		best = choices[call % FETCH_EXPLORE];
	pthread_mutex_unlock(&remote->lock);
	return best;
}

static void streams_learn(struct remote *remote, uint32_t streams, uint64_t bytes, int64_t ns)
{
	double *gb_s = &remote->gauge.gb_s[streams - 1], now = (double)bytes / (double)(ns > 0 ? ns : 1);
	pthread_mutex_lock(&remote->lock);
	*gb_s = *gb_s > 0 ? *gb_s * 0.75 + now * 0.25 : now;
	pthread_mutex_unlock(&remote->lock);
}

/* Starts the shares behind the first; those for which there is no thread are run here. */
static void shares_run(struct fetch_share *shares, uint32_t n)
{
	uint32_t started = 1;
	while (started < n && !thread_start(&shares[started].thread, share_thread, &shares[started]))
		started++;
	share_run(&shares[0]);
	for (uint32_t i = started; i < n; i++)
		share_run(&shares[i]);
	for (uint32_t i = 1; i < started; i++)
		pthread_join(shares[i].thread, NULL);
}

long remote_fetch(cairn *store, struct cairn_space *space, struct cairn_item *items, size_t n,
                  const struct cairn_call *call)
{
	struct fetch_share shares[REMOTE_STREAMS];
	uint64_t bytes = 0, room, done = 0, begun_ns = clock_mono_ns(store->clock);
	int fenced = 0; /* a fence is called by the thread that asked for it */
	for (size_t i = 0; i < n; i++) {
		bytes += buffers_check(&items[i], &room) ? 0 : room;
		for (uint32_t b = 0; items[i].bufs && b < items[i].nbufs && !fenced; b++)
			fenced = items[i].bufs[b].region && items[i].bufs[b].region->fence;
	}
	uint32_t streams = fenced ? 1 : streams_of(store->remote, bytes, n);
	size_t from = 0;
	for (uint32_t i = 0; i < streams; i++) {
		size_t to = n * (i + 1) / streams;
		shares[i] =
			(struct fetch_share){.store = store, .space = space, .items = items + from, .n = to - from, .call = call};
		from = to;
	}
	shares_run(shares, streams);
	int error = 0;
	for (uint32_t i = 0; i < streams; i++) {
		error = error ? error : shares[i].error;
		if (i && shares[i].text[0])
			err_set(shares[i].error, "%s", shares[i].text);
	}
	long good = 0;
	for (size_t i = 0; i < n; i++) {
		good += items[i].status == CAIRN_OK;
		done += items[i].status == CAIRN_OK ? items[i].ret_bytes : 0;
	}
	if (done >= 2 * FETCH_SPLIT_BYTES && done == bytes)
		streams_learn(store->remote, streams, done, (int64_t)(clock_mono_ns(store->clock) - begun_ns));
	return error && !good ? error : good;
}
