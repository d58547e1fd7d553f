/* SPDX-License-Identifier: Apache-2.0 */
/* Parts for another server: sent from where they lie, or as copies where that can not be. See daemon.h. */
#include "base/err.h"
#include "base/mem.h"
#include "daemon/serve.h"

/* A reader found a part damaged: is it so here? A get looks, throws out what is bad in memory, and takes what is good
 * in flash. The tier that has it. */
static uint32_t part_check(struct conn *conn, const cairn_space *space, const struct cairn_item *item, uint64_t length,
                       const struct store_call *call)
{
	cairn *store = conn->daemon->store;
	uint64_t room = length < CAIRN_PART_MAX_BYTES ? length : CAIRN_PART_MAX_BYTES;
	void *bytes = traffic_enter(conn, room) ? NULL : mem_alloc(room);
	struct cairn_buf buf = cairn_buf_of(bytes, room);
	struct cairn_item copy = *item;
	copy.bufs = &buf;
	copy.nbufs = 1;
	copy.ret_tier = CAIRN_TIER_NONE;
	if (bytes)
		(void)store_get(store, space, &copy, 1, call);
	mem_free(bytes);
	return copy.ret_tier;
}

#define FETCH_BYTES (32ull << 20) /* of a reply; the rest of a batch is busy, and asked for again */

/* Parts that can not be leased, since others hold all that may be (a receiver may take its time): copied, in memory of
 * the request's own. */
#define FETCH_COPY_BYTES (4ull << 20) /* or one part that is larger */
struct fetch_copies {
	uint8_t *bytes;
	uint64_t used, room;
};

/* Whether so much more of a reply may be under way. 0, or BUSY: it is to be asked for again. */
static int reply_fits(struct conn *conn, uint64_t bytes)
{
	int error = traffic_enter(conn, bytes);
	conn->later |= error == CAIRN_E_BUSY;
	return error;
}

/* The item's status, and where its bytes are. */
static int fetch_copy(struct conn *conn, const cairn_space *space, struct cairn_item *item, uint64_t length,
                      const struct store_call *call, struct fetch_copies *copies, const uint8_t **ret_from)
{
	cairn *store = conn->daemon->store;
	uint64_t bytes = item->ret_bytes;
	if (!bytes || bytes > length || reply_fits(conn, bytes))
		return item->status;
	if (!copies->bytes) {
		copies->room = bytes > FETCH_COPY_BYTES ? bytes : FETCH_COPY_BYTES;
		copies->bytes = mem_alloc(copies->room);
	}
	if (!copies->bytes || bytes > copies->room - copies->used)
		return item->status;
	struct cairn_buf buf = cairn_buf_of(copies->bytes + copies->used, bytes);
	item->bufs = &buf;
	item->nbufs = 1;
	if (store_get(store, space, item, 1, call) == 1) {
		*ret_from = copies->bytes + copies->used;
		copies->used += item->ret_bytes;
	}
	item->nbufs = 0;
	return item->status;
}

/* A receiver may be slow: it has its time for each piece. 0 or -1. */
static int part_send(struct conn *conn, const uint8_t *bytes, uint64_t length)
{
	enum { PIECE = 2 << 20 };
	int error = 0;
	for (uint64_t at = 0; at < length && !error; at += PIECE)
		error = link_send_bytes(conn->net, bytes + at, length - at < PIECE ? length - at : PIECE);
	return error ? -1 : 0;
}

/* Parts for another server: leased, sent from where they lie, given back. */
int serve_fetch(struct conn *conn, const struct wire_head *head, const struct wire_request *request)
{
	const struct wire_batch *batch = &request->u.batch;
	cairn *store = conn->daemon->store;
	struct batch_work *work = batch_work(conn);
	cairn_lease *leases[WIRE_ITEMS_MAX] = {0};
	cairn_space *space = space_of(conn, batch->space);
	struct store_call call = call_of(conn, head, batch);
	int64_t result = !work ? err_set(CAIRN_E_NOMEM, "no memory for a batch") : !space ? CAIRN_E_INVAL : 0;
	if (!result)
		result = batch_items(conn, batch, 0, work);
	if (result)
		return reply_plain(conn, head, result);
	uint64_t bytes = 0;
	int failed = 0, full = 0;
	struct fetch_copies copies = {0};
	const uint8_t *from[WIRE_ITEMS_MAX] = {0};
	store_begin(store, space, work->items, batch->nitems, &call);
	for (uint32_t i = 0; i < batch->nitems; i++) {
		struct cairn_item *item = &work->items[i];
		if (batch->items[i].flags & WIRE_ITEM_SOON) { /* asked for later */
			item->status = CAIRN_E_BUSY;
			result_of(item, &work->results[i]);
			continue;
		}
		uint32_t tier = CAIRN_TIER_NONE;
		if (batch->items[i].flags & WIRE_ITEM_CHECK)
			tier = part_check(conn, space, item, batch->items[i].length, &call);
		item->status =
			full ? CAIRN_E_BUSY : store_lease_take(store, space, item, &call, batch->items[i].length, &leases[i]);
		if (leases[i] && (item->status = reply_fits(conn, item->ret_bytes))) {
			cairn_lease_release(store, leases[i]);
			leases[i] = NULL;
			full = 1;
		}
		if (item->status == CAIRN_E_BUSY && !full)
			item->status = fetch_copy(conn, space, item, batch->items[i].length, &call, &copies, &from[i]);
		full |= item->status == CAIRN_E_BUSY && bytes;
		if (leases[i] || from[i])
			bytes += item->ret_bytes;
		full |= bytes >= FETCH_BYTES;
		failed |= item->status < 0;
		item->ret_tier = leases[i] && tier ? tier : item->ret_tier;
		result_of(item, &work->results[i]);
	}
	int error =
		conn_begin(conn, failed ? cairn_error_text() : NULL, (size_t)batch->nitems * sizeof(struct wire_result));
	if (!error) {
		for (uint32_t i = 0; i < batch->nitems; i++)
			wire_add_result(&conn->reply, &work->results[i]);
		error = conn_reply_bulk(conn, head, 0, 0, bytes);
	}
	for (uint32_t i = 0; i < batch->nitems; i++) {
		struct cairn_lease_info info = {.address = from[i], .bytes = work->items[i].ret_bytes};
		if (!leases[i] && !from[i])
			continue;
		if (leases[i])
			cairn_lease_get_info(leases[i], &info);
		error = error ? error : part_send(conn, info.address, info.bytes);
		cairn_lease_release(store, leases[i]);
	}
	count_moved(conn, batch, WIRE_FETCH, work);
	mem_free(copies.bytes);
	return error;
}
