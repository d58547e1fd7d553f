/* SPDX-License-Identifier: Apache-2.0 */
/* Parts over a cairnd: put, get, lease, match. See remote.h. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/digest.h"
#include "base/err.h"
#include "base/mem.h"
#include "store/match.h"
#include "store/remote_data.h"

#define STAGE_BATCH_BYTES (32u << 20) /* of a batch, through staging memory; a larger part goes alone */
#define PIECE_LEAST_BYTES (32u << 10) /* what always finds room, with its names */
#define STAGE_ALIGN 4096u

/* Of a call's time, one deadline for all that it asks. */
uint32_t data_time_left(const struct data_work *work, uint32_t timeout_ms)
{
	int64_t gone = link_now_ms() - work->begun_ms;
	return !timeout_ms ? 0 : gone < timeout_ms ? timeout_ms - (uint32_t)gone : 1;
}

struct data_work *data_begin(cairn *store, struct cairn_space *space, uint32_t type, const struct cairn_call *call,
                             int *ret_error)
{
	struct remote *remote = store->remote;
	int64_t begun_ms = link_now_ms();
	int bulk = type == WIRE_FETCH || type == WIRE_PUT;
	struct remote_link *link = bulk ? remote_link_take_bulk(remote, call->timeout_ms, ret_error)
	                                : remote_link_take(remote, call->timeout_ms, ret_error);
	if (!link)
		return NULL;
	struct data_work *work = link->work ? link->work : mem_alloc(sizeof(*work)); /* not zeroed anew for each call */
	if (work) {
		link->work = work;
		work->remote = remote;
		work->link = link;
		work->begun_ms = begun_ms;
		work->broken = 0;
		work->request.type = type;
		work->request.u.batch.durability = call->durability;
		work->request.u.batch.background = call->background;
		*ret_error = remote_space_number(remote, link, space, &work->request.u.batch.space);
		if (!*ret_error)
			return work;
	} else {
		*ret_error = err_set(CAIRN_E_NOMEM, "no memory for a request");
	}
	remote_link_drop(remote, link, *ret_error == CAIRN_E_IO);
	return NULL;
}

void data_end(struct data_work *work)
{
	remote_link_drop(work->remote, work->link, work->broken); /* it is the link's */
}

/* ---- extents ----------------------------------------------------------------------------------------------------- */

/* The mapping of an extent, by its number; NULL: not known. The lock is held. */
static struct remote_extent *extent_find(struct remote *remote, uint64_t id)
{
	for (uint32_t i = 0; i < remote->nextents; i++)
		if (remote->extents[i].id == id && !remote->extents[i].gone)
			return &remote->extents[i];
	return NULL;
}

static void extent_unmap(struct remote *remote, struct remote_extent *extent)
{
	munmap(extent->address, extent->length);
	close(extent->fd);
	*extent = remote->extents[--remote->nextents];
}

/* Read-only, at an address at which the daemon's huge pages are mapped as such. MAP_FAILED: no room. */
static void *extent_map(int fd, uint64_t length)
{
	const uint64_t huge = 2u << 20;
	uint8_t *room = mmap(NULL, length + huge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (room == MAP_FAILED)
		return MAP_FAILED;
	uint64_t before = (huge - (uintptr_t)room % huge) % huge, end = BYTES_ROUND_UP(length, 4096u);
	void *at = mmap(room + before, length, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0);
	if (at == MAP_FAILED) {
		munmap(room, length + huge);
		return MAP_FAILED;
	}
	if (before)
		munmap(room, before);
	if (huge > before)
		munmap(room + before + end, huge - before);
	(void)madvise(at, length, MADV_HUGEPAGE); /* what the system allows of it */
	return at;
}

/* Takes over the descriptor of `given`, which is filled but for its address. The lock is held. 0, NOMEM, or IO: it is
 * not what it is said to be. */
static int extent_add(struct remote *remote, struct remote_extent given)
{
	struct stat stat;
	if (extent_find(remote, given.id)) {
		close(given.fd); /* came by another connection too */
		return 0;
	}
	if (remote->nextents == remote->extents_room) {
		uint32_t room = remote->extents_room ? 2 * remote->extents_room : 16;
		struct remote_extent *grown = mem_grow(remote->extents, room * sizeof(*grown));
		if (!grown) {
			close(given.fd);
			return CAIRN_E_NOMEM;
		}
		remote->extents = grown;
		remote->extents_room = room;
	}
	int good = given.length && !fstat(given.fd, &stat) && (uint64_t)stat.st_size == given.length;
	given.address = good ? extent_map(given.fd, given.length) : MAP_FAILED;
	if (given.address == MAP_FAILED) {
		close(given.fd);
		return good ? CAIRN_E_NOMEM : CAIRN_E_IO;
	}
	remote->extents[remote->nextents++] = given;
	return 0;
}

/* A list of all extents that the daemon has: memory that it gave up is let go, or it would be taken twice. What
 * somebody here still reads (of a daemon that is no more) goes when that ends. */
static void extents_keep(struct remote *remote, uint64_t life, uint64_t generation, const uint8_t *ids, uint32_t n)
{
	if (life != remote->life || generation < remote->generation)
		return; /* an older answer, which another connection's has overtaken */
	remote->generation = generation;
	for (uint32_t i = remote->nextents; i-- > 0;) {
		struct remote_extent *extent = &remote->extents[i];
		int there = extent->life == life && extent->known > generation;
		for (uint32_t k = 0; k < n && !there; k++)
			there = extent->life == life && bytes_get64(ids + 8ull * k) == extent->id;
		extent->gone |= !there;
		if (extent->gone && !extent->readers)
			extent_unmap(remote, extent);
	}
}

/* What a lease's reply says of extents: as many numbers and lengths as descriptors; then the generation, and perhaps a
 * list. 0 or IO. */
static int extents_take(struct remote *remote, const struct remote_link *link, struct remote_reply *reply)
{
	struct remote_extent given[WIRE_FDS_MAX];
	uint32_t nfds = reply->head.nfds;
	int error = 0;
	for (uint32_t i = 0; i < nfds; i++) {
		given[i] = (struct remote_extent){.life = link->life, .fd = reply->fds[i]};
		given[i].id = bytes_take64(&reply->body);
		given[i].length = bytes_take64(&reply->body);
	}
	uint64_t generation = bytes_take64(&reply->body);
	uint32_t n = bytes_take32(&reply->body);
	const uint8_t *ids = n <= WIRE_BODY_MAX / 8 ? bytes_take(&reply->body, 8ull * n) : NULL;
	error = reply->body.failed || (n && !ids) ? CAIRN_E_IO : 0;
	pthread_mutex_lock(&remote->lock);
	if (link->life == remote->life && remote->extents_life != link->life) { /* another daemon counts anew */
		remote->extents_life = link->life;
		remote->generation = 0;
	}
	for (uint32_t i = 0; i < nfds; i++) {
		given[i].known = generation;
		if (error)
			close(given[i].fd);
		else
			error = extent_add(remote, given[i]);
	}
	if (!error && n)
		extents_keep(remote, link->life, generation, ids, n);
	pthread_mutex_unlock(&remote->lock);
	return error;
}

/* Where a leased part lies in this process, which reads there until extent_leave; NULL: nowhere that it could. */
static const uint8_t *extent_enter(struct remote *remote, const struct wire_result *result, int *ret_fd)
{
	const uint8_t *at = NULL;
	pthread_mutex_lock(&remote->lock);
	struct remote_extent *extent = extent_find(remote, result->extent);
	if (extent && result->offset <= extent->length && result->bytes <= extent->length - result->offset) {
		at = extent->address + result->offset;
		*ret_fd = extent->fd;
		extent->readers++;
	}
	pthread_mutex_unlock(&remote->lock);
	return at;
}

static void extent_leave(struct remote *remote, int fd)
{
	pthread_mutex_lock(&remote->lock);
	for (uint32_t i = 0; i < remote->nextents; i++) {
		struct remote_extent *extent = &remote->extents[i];
		if (extent->fd != fd)
			continue;
		check(extent->readers);
		if (--extent->readers == 0 && extent->gone)
			extent_unmap(remote, extent);
		break;
	}
	pthread_mutex_unlock(&remote->lock);
}

/* ---- batches ----------------------------------------------------------------------------------------------------- */

int data_wrong(const struct remote *remote)
{
	return err_set(CAIRN_E_IO, "the cairnd at %s answered with something else", remote->place.text);
}

/* What a batch's reply says: its results are in work->results. 0 or an error, of all of them. */
int data_results(struct data_work *work, uint32_t n)
{
	if (work->reply.head.result < 0 && work->reply.body.at == work->reply.body.end)
		return (int)work->reply.head.result; /* concerns all: there are no results */
	if (work->request.type == WIRE_LEASE && extents_take(work->remote, work->link, &work->reply))
		work->broken = 1;
	for (uint32_t i = 0; i < n; i++)
		wire_take_result(&work->reply.body, &work->results[i]);
	if (work->reply.body.failed || work->broken) {
		work->broken = 1;
		return data_wrong(work->remote);
	}
	return 0;
}

static int batch_send(struct data_work *work, uint32_t timeout_ms)
{
	int error = remote_call(work->remote, work->link, &work->request, data_time_left(work, timeout_ms), &work->reply);
	if (!error)
		return data_results(work, work->request.u.batch.nitems);
	work->broken = 1;
	return error;
}

void data_item(struct cairn_item *item, const struct wire_result *result)
{
	item->status = result->status;
	item->ret_tier = result->tier;
	item->ret_bytes = result->bytes;
	item->ret_check = result->check;
}

void remote_item_name(const struct cairn_item *item, struct wire_item *to)
{
	*to = (struct wire_item){.key = item->key, .group = item->group, .part = item->part, .flags = item->flags};
	if (item->parent) {
		to->parent = *item->parent;
		to->has_parent = 1;
	}
	if (item->engine_hash_bytes <= CAIRN_HASH_MAX) /* of a get nobody has looked */
		to->hash_bytes = item->engine_hash_bytes;
	if (to->hash_bytes)
		memcpy(to->hash, item->engine_hash, to->hash_bytes);
}

void data_fail(struct cairn_item *items, size_t from, size_t n, int error)
{
	for (size_t i = from; i < n; i++) {
		items[i].status = error;
		items[i].ret_tier = CAIRN_TIER_NONE;
		items[i].ret_bytes = items[i].ret_check = 0;
	}
}

void remote_item_copy(uint8_t *to, const struct cairn_item *item)
{
	buffers_fence(item);
	for (uint32_t b = 0; b < item->nbufs; b++) {
		if (item->bufs[b].length)
			memcpy(to, buffer_address(&item->bufs[b]), item->bufs[b].length);
		to += item->bufs[b].length;
	}
}

/* 0, or why the item can not be put, and its text. */
static int32_t put_refused(const struct cairn_item *item, uint64_t *ret_bytes)
{
	if (buffers_check(item, ret_bytes))
		return err_set(CAIRN_E_INVAL, "put: a buffer of the item lies outside of its region");
	if (*ret_bytes < CAIRN_PART_MIN_BYTES || *ret_bytes > CAIRN_PART_MAX_BYTES)
		return err_set(CAIRN_E_SIZE, "put: a part of %llu bytes", (unsigned long long)*ret_bytes);
	return 0;
}

/* The next items that fit into one batch. Those that can not be put go along without bytes: the daemon refuses them,
 * and with them what goes on from them. Returns the first not taken. */
static size_t put_gather(struct data_work *work, struct cairn_item *items, size_t at, size_t n, uint64_t *ret_bytes)
{
	uint32_t piece = __atomic_load_n(&work->remote->piece_bytes, __ATOMIC_RELAXED);
	struct wire_batch *batch = &work->request.u.batch;
	uint64_t used = 0;
	batch->nitems = 0;
	for (; at < n && batch->nitems < WIRE_ITEMS_MAX; at++) {
		uint64_t bytes;
		int32_t refused = put_refused(&items[at], &bytes);
		if (refused)
			bytes = 0;
		if (batch->nitems && used + bytes > (piece ? piece : STAGE_BATCH_BYTES))
			break;
		struct wire_item *to = &batch->items[batch->nitems];
		remote_item_name(&items[at], to);
		to->offset = used;
		to->length = bytes;
		work->refused[batch->nitems] = refused;
		work->index[batch->nitems++] = (uint32_t)at;
		used = BYTES_ROUND_UP(used + bytes, STAGE_ALIGN);
	}
	*ret_bytes = used;
	return at;
}

/* ---- put and get where no memory is shared ----------------------------------------------------------------------- */

/* A batch has found no room at the daemon, or has: the next are smaller, or, by and by, larger again. */
static void put_learn(struct data_work *work, uint64_t bytes, int refused)
{
	uint32_t *piece = &work->remote->piece_bytes, now = __atomic_load_n(piece, __ATOMIC_RELAXED);
	if (refused && work->request.u.batch.nitems > 1)
		__atomic_store_n(piece, bytes / 2 > PIECE_LEAST_BYTES ? (uint32_t)(bytes / 2) : PIECE_LEAST_BYTES,
		                 __ATOMIC_RELAXED);
	else if (!refused && now)
		__atomic_store_n(piece, now < STAGE_BATCH_BYTES ? now + now / 16 : 0, __ATOMIC_RELAXED);
}

/* Too much was under way at the daemon, and nothing of the batch was looked at: whether to try again, in smaller pieces
 * where there are any, now or in a while. */
static int put_again(struct data_work *work, uint64_t bytes, struct remote_patience *patience)
{
	if (work->broken || !(work->reply.head.flags & WIRE_LATER))
		return 0;
	int whole = work->request.u.batch.nitems == 1;
	put_learn(work, bytes, 1);
	return whole && work->reply.head.result != CAIRN_E_BUSY ? 0 : remote_wait(patience);
}

static long put_once(cairn *store, struct cairn_space *space, struct cairn_item *items, size_t n,
                     const struct cairn_call *call)
{
	int error;
	long good = 0;
	struct data_work *work = data_begin(store, space, WIRE_PUT, call, &error);
	if (!work) {
		data_fail(items, 0, n, error);
		return error;
	}
	const struct wire_batch *batch = &work->request.u.batch;
	struct remote_patience patience = {.until_ms = call->timeout_ms ? work->begun_ms + call->timeout_ms : 0};
	for (size_t at = 0; at < n;) {
		size_t from = at;
		uint64_t bytes;
		at = put_gather(work, items, at, n, &bytes);
		if (!batch->nitems)
			continue;
		if (work->remote->tcp) {
			error = remote_travel(work, items, call->timeout_ms);
		} else if ((error = remote_stage_fit(work->remote, work->link, bytes))) {
			work->broken |= error == CAIRN_E_IO;
		} else {
			for (uint32_t i = 0; i < batch->nitems; i++)
				if (!work->refused[i])
					remote_item_copy(work->link->stage + batch->items[i].offset, &items[work->index[i]]);
			error = batch_send(work, call->timeout_ms);
		}
		if (error && work->remote->tcp && put_again(work, bytes, &patience)) {
			at = from;
			error = 0;
			continue;
		}
		if (error) {
			data_fail(items, from, n, error);
			break;
		}
		put_learn(work, bytes, 0);
		patience = (struct remote_patience){.until_ms = patience.until_ms};
		for (uint32_t i = 0; i < batch->nitems; i++) {
			if (work->refused[i])
				data_fail(items, work->index[i], work->index[i] + 1ull, put_refused(&items[work->index[i]], &bytes));
			else
				data_item(&items[work->index[i]], &work->results[i]);
			good += work->results[i].status == CAIRN_OK || work->results[i].status == CAIRN_EXISTED;
		}
	}
	data_end(work);
	return error && !good ? error : good;
}

typedef long batch_call(cairn *store, struct cairn_space *space, struct cairn_item *items, size_t n,
                        const struct cairn_call *call);

/* A batch is made anew whole where the daemon ended in the middle of it: to put twice what is there is no harm. */
static long batch_again(batch_call *once, cairn *store, struct cairn_space *space, struct cairn_item *items, size_t n,
                        const struct cairn_call *call)
{
	uint64_t begun = clock_mono_ns(&clock_real);
	struct cairn_call left = *call;
	long good;
	do
		good = once(store, space, items, n, &left);
	while (good != (long)n && remote_again(store->remote, begun, call->timeout_ms, &left.timeout_ms));
	return good;
}

long remote_put(cairn *store, struct cairn_space *space, struct cairn_item *items, size_t n,
                const struct cairn_call *call)
{
	return batch_again(put_once, store, space, items, n, call);
}

/* Do the item's buffers have room for the part? 0, INVAL or SIZE. */
int data_room(const struct cairn_item *item, const struct wire_result *result)
{
	uint64_t room;
	if (buffers_check(item, &room))
		return err_set(CAIRN_E_INVAL, "get: a buffer of the item lies outside of its region");
	if (room < result->bytes)
		return err_set(CAIRN_E_SIZE, "get: the part has %llu bytes, the buffers %llu",
		               (unsigned long long)result->bytes, (unsigned long long)room);
	return 0;
}

/* The items that can be asked for; the others get their status. */
uint32_t data_with_room(struct cairn_item *items, size_t from, size_t to, uint32_t *ret_index)
{
	uint32_t n = 0;
	uint64_t room;
	for (size_t i = from; i < to; i++) {
		if (buffers_check(&items[i], &room))
			data_fail(items, i, i + 1,
			          err_set(CAIRN_E_INVAL, "get: a buffer of the item lies outside of its region"));
		else
			ret_index[n++] = (uint32_t)i;
	}
	return n;
}

/* ---- get --------------------------------------------------------------------------------------------------------- */

/* Copies a part into the item's buffers and checks the copy. */
static void part_deliver(struct cairn_item *item, const struct wire_result *result, const uint8_t *from)
{
	if (!buffers_deliver(item, from, result->bytes, result->check))
		item->status = err_set(CAIRN_DAMAGED, "get: the bytes failed their check on their way from the cairnd");
}

/* One lease of the batch is here: delivers it, or says why not. */
static void lease_deliver(struct data_work *work, struct cairn_item *item, const struct wire_result *result)
{
	int fd;
	data_item(item, result);
	if (item->status != CAIRN_OK)
		return;
	const uint8_t *from = extent_enter(work->remote, result, &fd);
	if (!from)
		item->status =
			err_set(CAIRN_E_IO, "get: the cairnd at %s named memory that is not there", work->remote->place.text);
	else if (!(item->status = data_room(item, result)))
		part_deliver(item, result, from);
	if (from)
		extent_leave(work->remote, fd);
}

/* Gives numbers that the daemon holds for us back: one way, nothing is waited for. 0 or -errno. */
static int numbers_return(struct remote_link *link, uint32_t type, const uint64_t *numbers, uint32_t n)
{
	uint8_t body[4 + 8 * WIRE_ITEMS_MAX];
	struct bytes_writer w = bytes_writer_of(body, sizeof(body));
	bytes_add32(&w, n);
	for (uint32_t i = 0; i < n; i++)
		bytes_add64(&w, numbers[i]);
	struct wire_head head = {
		.version = WIRE_VERSION, .type = (uint16_t)type, .body_bytes = (uint32_t)w.used, .id = link->next_id};
	return link_send(link->net, &head, body, NULL, 0);
}

/* Gives the leases of the batch's results back. */
static int leases_return(struct data_work *work, uint32_t asked)
{
	uint64_t numbers[WIRE_ITEMS_MAX];
	uint32_t n = 0;
	for (uint32_t i = 0; i < asked; i++)
		if (work->results[i].status == CAIRN_OK)
			numbers[n++] = work->results[i].lease;
	return n ? numbers_return(work->link, WIRE_RELEASE, numbers, n) : 0;
}

/* A part that can not be leased now: the daemon copies it into our staging memory. */
static int copy_one(struct data_work *work, struct cairn_item *item, uint32_t timeout_ms)
{
	struct wire_batch *batch = &work->request.u.batch;
	uint64_t room;
	if (buffers_check(item, &room)) {
		item->status = err_set(CAIRN_E_INVAL, "get: a buffer of the item lies outside of its region");
		return 0;
	}
	uint64_t bytes = item->ret_bytes && item->ret_bytes < room ? item->ret_bytes : room;
	int error = remote_stage_fit(work->remote, work->link, bytes ? bytes : 1);
	if (error) {
		work->broken |= error == CAIRN_E_IO;
		return error;
	}
	work->request.type = WIRE_GET;
	batch->nitems = 1;
	remote_item_name(item, &batch->items[0]);
	batch->items[0].length = bytes;
	error = batch_send(work, timeout_ms);
	work->request.type = WIRE_LEASE;
	if (error)
		return error;
	data_item(item, &work->results[0]);
	if (item->status == CAIRN_OK && work->results[0].bytes > bytes)
		item->status = data_wrong(work->remote);
	if (item->status == CAIRN_OK)
		part_deliver(item, &work->results[0], work->link->stage);
	return 0;
}

/* Leases as many as can be had at once, takes their bytes, gives them back; what was refused is asked for again. */
static int get_batch(struct data_work *work, struct cairn_item *items, size_t from, size_t to, uint32_t timeout_ms)
{
	struct wire_batch *batch = &work->request.u.batch;
	uint32_t pending[WIRE_ITEMS_MAX], n = data_with_room(items, from, to, pending);
	uint32_t damaged[WIRE_ITEMS_MAX], ndamaged = 0;
	int error = 0;
	while (n && !error) {
		batch->nitems = n;
		for (uint32_t i = 0; i < n; i++) {
			remote_item_name(&items[pending[i]], &batch->items[i]);
			(void)buffers_check(&items[pending[i]], &batch->items[i].length); /* the room for it */
		}
		error = batch_send(work, timeout_ms);
		if (error)
			return error;
		uint32_t busy = 0, asked = n;
		for (uint32_t i = 0; i < asked; i++) {
			lease_deliver(work, &items[pending[i]], &work->results[i]);
			if (work->results[i].status == CAIRN_E_BUSY)
				pending[busy++] = pending[i];
			else if (work->results[i].status == CAIRN_OK && items[pending[i]].status == CAIRN_DAMAGED)
				damaged[ndamaged++] = pending[i];
		}
		if (leases_return(work, asked)) {
			work->broken = 1; /* what is here is here all the same */
			return busy || ndamaged ? remote_lost(work->remote, work->link, -ECONNRESET) : 0;
		}
		n = busy;
		if (busy == asked) { /* others hold all that may be leased */
			for (uint32_t i = 0; i < busy && !error; i++)
				error = copy_one(work, &items[pending[i]], timeout_ms);
			break;
		}
	}
	/* The daemon looks at them itself: throws out what is bad in memory, and has perhaps a good one in flash. */
	for (uint32_t i = 0; i < ndamaged && !error; i++)
		error = copy_one(work, &items[damaged[i]], timeout_ms);
	return error;
}

static long get_once(cairn *store, struct cairn_space *space, struct cairn_item *items, size_t n,
                     const struct cairn_call *call)
{
	int error;
	long good = 0;
	if (store->remote->tcp)
		return remote_fetch(store, space, items, n, call);
	struct data_work *work = data_begin(store, space, WIRE_LEASE, call, &error);
	if (!work) {
		data_fail(items, 0, n, error);
		return error;
	}
	for (size_t at = 0; at < n && !error;) {
		size_t to = n - at < WIRE_ITEMS_MAX ? n : at + WIRE_ITEMS_MAX;
		error = get_batch(work, items, at, to, call->timeout_ms);
		if (error)
			data_fail(items, at, n, error);
		at = to;
	}
	for (size_t i = 0; i < n; i++)
		good += items[i].status == CAIRN_OK;
	data_end(work);
	return error && !good ? error : good;
}

long remote_get(cairn *store, struct cairn_space *space, struct cairn_item *items, size_t n,
                const struct cairn_call *call)
{
	return batch_again(get_once, store, space, items, n, call);
}

/* ---- leases and matches that last -------------------------------------------------------------------------------- */

/* Another server's part: a copy in memory of our own, checked as it came. */
static int lease_copy(cairn *store, struct cairn_space *space, struct cairn_item *item, const struct cairn_call *call,
                      struct cairn_lease_info *ret_info)
{
	uint64_t room = 1u << 20;
	for (int tries = 0; tries < 2; tries++) {
		uint8_t *bytes = mem_aligned(4096, BYTES_ROUND_UP(room, 4096u));
		if (!bytes)
			return item->status =
			           err_set(CAIRN_E_NOMEM, "no memory for a part of %llu bytes", (unsigned long long)room);
		struct cairn_buf buf = cairn_buf_of(bytes, room);
		struct cairn_item copy = *item;
		copy.bufs = &buf;
		copy.nbufs = 1;
		(void)remote_get(store, space, &copy, 1, call);
		item->status = copy.status;
		item->ret_tier = copy.ret_tier;
		item->ret_bytes = copy.ret_bytes;
		item->ret_check = copy.ret_check;
		if (!item->status) {
			*ret_info = (struct cairn_lease_info){.address = bytes, .bytes = copy.ret_bytes, .check = copy.ret_check,
			                                      .tier = copy.ret_tier, .fd = -1};
			return 0;
		}
		mem_free(bytes);
		if (item->status != CAIRN_E_SIZE || copy.ret_bytes <= room)
			break;
		room = copy.ret_bytes;
	}
	return item->status;
}

static int lease_once(cairn *store, struct cairn_space *space, struct cairn_item *item, const struct cairn_call *call,
                      struct cairn_lease_info *ret_info, uint64_t *ret_number)
{
	int error;
	if (store->remote->tcp)
		return lease_copy(store, space, item, call, ret_info);
	struct data_work *work = data_begin(store, space, WIRE_LEASE, call, &error);
	if (!work)
		return item->status = error;
	work->request.u.batch.nitems = 1;
	remote_item_name(item, &work->request.u.batch.items[0]);
	error = batch_send(work, call->timeout_ms);
	if (error) {
		data_fail(item, 0, 1, error);
	} else {
		const struct wire_result *result = &work->results[0];
		int fd = -1;
		data_item(item, result);
		const uint8_t *at = item->status ? NULL : extent_enter(work->remote, result, &fd);
		if (!item->status && !at)
			item->status =
				err_set(CAIRN_E_IO, "lease: the cairnd at %s named memory that is not there", work->remote->place.text);
		*ret_info = (struct cairn_lease_info){.address = at, .bytes = result->bytes, .check = result->check,
		                                      .tier = result->tier, .fd = fd, .fd_offset = result->offset};
		*ret_number = result->lease;
	}
	data_end(work);
	return item->status;
}

int remote_lease_take(cairn *store, struct cairn_space *space, struct cairn_item *item, const struct cairn_call *call,
                      struct cairn_lease_info *ret_info, uint64_t *ret_number)
{
	uint64_t begun = clock_mono_ns(&clock_real);
	struct cairn_call left = *call;
	int status;
	do
		status = lease_once(store, space, item, &left, ret_info, ret_number);
	while (status < 0 && remote_again(store->remote, begun, call->timeout_ms, &left.timeout_ms));
	return status;
}

static void number_return(cairn *store, uint32_t type, uint64_t number)
{
	int error;
	struct remote_link *link = remote_link_take(store->remote, 0, &error);
	if (!link)
		return; /* the daemon is gone, and with it what it held for us */
	remote_link_drop(store->remote, link, numbers_return(link, type, &number, 1) != 0);
}

void remote_lease_release(cairn *store, uint64_t number, int fd)
{
	extent_leave(store->remote, fd);
	number_return(store, WIRE_RELEASE, number);
}

void remote_match_release(cairn *store, uint64_t number)
{
	number_return(store, WIRE_MATCH_RELEASE, number);
}

/* What the daemon answers to a match or a join. */
static int match_call(struct data_work *work, uint32_t timeout_ms, struct cairn_match *match)
{
	struct remote_patience patience = {.until_ms = timeout_ms ? work->begun_ms + timeout_ms : 0};
	int error;
	do
		error = remote_call(work->remote, work->link, &work->request, timeout_ms, &work->reply);
	while (!error && remote_is_later(&work->reply) && remote_wait(&patience));
	work->broken = error == CAIRN_E_IO;
	if (!error && work->reply.head.result < 0)
		error = (int)work->reply.head.result;
	if (error)
		return error;
	match->remote = bytes_take64(&work->reply.body);
	const uint8_t *ticket = bytes_take(&work->reply.body, sizeof(match->ticket.bytes));
	if (ticket)
		memcpy(match->ticket.bytes, ticket, sizeof(match->ticket.bytes));
	wire_take_struct(&work->reply.body, &match->info, sizeof(match->info));
	if (!work->reply.body.failed)
		return 0;
	work->broken = 1;
	return data_wrong(work->remote);
}

int remote_match_take(cairn *store, struct cairn_space *space, const struct cairn_chain *chains, size_t nchains,
                      uint64_t parts, uint32_t timeout_ms, struct cairn_match *match)
{
	int error;
	struct data_work *work = data_begin(store, space, WIRE_MATCH, &(struct cairn_call){0}, &error);
	if (!work)
		return error;
	uint32_t number = work->request.u.batch.space;
	struct wire_match *ask = &work->request.u.match;
	memset(ask, 0, sizeof(*ask));
	ask->space = number;
	ask->parts = parts;
	ask->nchains = (uint32_t)nchains;
	for (size_t i = 0; i < nchains; i++)
		ask->chains[i] = (struct wire_chain){chains[i].group, chains[i].nkeys, chains[i].keys};
	/* Its time is that of the answer, not of the call. */
	error = match_call(work, timeout_ms, match);
	data_end(work);
	return error;
}

int remote_match_join(cairn *store, struct cairn_space *space, const struct cairn_ticket *ticket,
                      struct cairn_match *match)
{
	int error;
	struct data_work *work = data_begin(store, space, WIRE_MATCH_JOIN, &(struct cairn_call){0}, &error);
	if (!work)
		return error;
	uint32_t number = work->request.u.batch.space;
	work->request.u.join = (struct wire_join){.space = number, .ticket = *ticket};
	error = match_call(work, 0, match);
	data_end(work);
	return error;
}

long remote_match_agree(cairn *store, uint64_t number, uint32_t ranks, uint64_t tokens, uint32_t timeout_ms)
{
	struct wire_request *request = mem_alloc(sizeof(*request));
	if (!request)
		return err_set(CAIRN_E_NOMEM, "no memory for a request");
	request->type = WIRE_MATCH_AGREE;
	request->u.agree = (struct wire_agree){number, tokens, ranks};
	long result = (long)remote_ask(store->remote, request, timeout_ms, NULL, NULL);
	mem_free(request);
	return result;
}
