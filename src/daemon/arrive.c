/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What comes behind frames: the payload of puts and saves from another server.
 *
 * A put's parts are received straight into the memory tier, each hashed chunk by chunk as it comes, and each is seen by
 * others only if it is what was sent. So that slow senders do not keep the tier from others, the room that is being
 * received into is bounded; beyond that, a batch is received whole first, into memory of the connection's own.
 *
 * Threads: the connection's own. Memory: the connection's staging, as large as its largest batch; its pages are taken
 * only as they are written, and given back when the request has been answered. traffic.c bounds the sum.
 * Invariant: when arrival_end returns 0, all bulk bytes of the frame have been received.
 */
#include "daemon/arrive.h"

#include <string.h>
#include <sys/mman.h>

#include "base/digest.h"
#include "base/err.h"

#define ARRIVE_CHUNK (256u << 10) /* received, and hashed while it is in the cache */
#define ARRIVE_ROOM  (64ull << 20) /* of addresses alone, that a connection keeps */
#define ARRIVE_SHARE 8            /* of the memory tier may be received into at a time: one in so many bytes */

static int arrive_stage(struct conn *conn, uint64_t bytes)
{
	uint64_t room = 4u << 20;
	if (bytes <= conn->stage_bytes)
		return 0;
	while (room < bytes)
		room *= 2;
	uint8_t *stage = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (stage == MAP_FAILED)
		return -1;
	if (conn->stage)
		munmap(conn->stage, conn->stage_bytes);
	conn->stage = stage;
	conn->stage_bytes = room;
	return 0;
}

int arrive_whole(struct conn *conn, uint64_t bytes)
{
	if (arrive_stage(conn, bytes))
		return -1;
	conn->staged = 1;
	return link_receive_bytes(conn->net, conn->stage, bytes) ? -1 : 0;
}

void arrive_end(struct conn *conn)
{
	if (!conn->tcp || !conn->stage || (!conn->staged && conn->stage_bytes <= ARRIVE_ROOM))
		return;
	munmap(conn->stage, conn->stage_bytes);
	conn->stage = NULL;
	conn->stage_bytes = 0;
	conn->staged = 0;
}

/* ---- one part ---------------------------------------------------------------------------------------------------- */

/* Receives `length` bytes to `to`; their checksum. 0 or -1. */
static int chunks_receive(struct arrival *arrival, uint8_t *to, uint64_t length, uint64_t *ret_check)
{
	struct digest_xxh xxh;
	digest_xxh_init(&xxh, 0);
	while (length) {
		size_t take = length < ARRIVE_CHUNK ? length : ARRIVE_CHUNK;
		if (link_receive_by(arrival->conn->net, to, take, arrival->deadline_ms))
			return -1;
		digest_xxh_add(&xxh, to, take);
		to += take;
		length -= take;
	}
	*ret_check = digest_xxh_done(&xxh);
	return 0;
}

/* The next part, and what its sender says of it. Its status: 0, or IO. */
static int part_receive(struct arrival *arrival, uint8_t *to)
{
	const struct wire_item *item = &arrival->items[arrival->next];
	uint8_t said[8];
	if (arrival->broken || chunks_receive(arrival, to, item->length, &arrival->check[arrival->next]) ||
	    link_receive_by(arrival->conn->net, said, sizeof(said), arrival->deadline_ms)) {
		arrival->broken = 1;
		return err_set(CAIRN_E_IO, "put: the connection ended in the middle of a part");
	}
	int same = bytes_get64(said) == arrival->check[arrival->next];
	arrival->state[arrival->next++] = same ? ARRIVED_AWAY : ARRIVED_WRONG;
	return same ? 0 : err_set(CAIRN_E_IO, "put: item %u changed on its way", arrival->next - 1);
}

/* The parts before `to`, into the staging memory: somebody may still ask for them. */
static int parts_stage(struct arrival *arrival, uint32_t to)
{
	while (arrival->next < to) {
		uint32_t at = arrival->next;
		arrival->conn->staged = 1;
		int error = part_receive(arrival, arrival->conn->stage + arrival->items[at].offset);
		if (arrival->broken)
			return error;
		if (!error)
			arrival->state[at] = ARRIVED_STAGED;
	}
	return 0;
}

/* Of struct store_source. */
static int part_take(void *arg, const struct cairn_item *item, uint8_t *to, uint64_t *ret_check)
{
	struct arrival *arrival = arg;
	uint32_t index = (uint32_t)(item - arrival->batch);
	const uint8_t *staged = arrival->conn->stage + arrival->items[index].offset;
	int error = parts_stage(arrival, index);
	if (!error && index == arrival->next) {
		error = to ? part_receive(arrival, to) : parts_stage(arrival, index + 1);
		*ret_check = arrival->check[index];
		if (error || to)
			return error;
	}
	if (error)
		return error;
	if (arrival->state[index] != ARRIVED_STAGED)
		return err_set(CAIRN_E_IO, "put: item %u changed on its way", index);
	*ret_check = arrival->check[index];
	if (to) { /* the pool's copy is what is hashed, as with every put */
		struct digest_xxh xxh;
		digest_xxh_init(&xxh, 0);
		digest_xxh_copy(&xxh, to, staged, arrival->items[index].length);
		*ret_check = digest_xxh_done(&xxh);
	}
	return 0;
}

/* ---- a batch ----------------------------------------------------------------------------------------------------- */

/* Whether the payload is laid out as the items say. */
static int layout_check(const struct arrival *arrival, uint64_t bulk_bytes)
{
	uint64_t at = 0;
	for (uint32_t i = 0; i < arrival->nitems; i++) {
		const struct wire_item *item = &arrival->items[i];
		if (item->offset != at || bulk_bytes - at < 8 || item->length > bulk_bytes - at - 8)
			return -1;
		at += item->length + 8;
	}
	return at == bulk_bytes ? 0 : -1;
}

int arrival_begin(struct conn *conn, struct arrival *arrival, const struct wire_batch *batch,
                  const struct cairn_item *items, uint64_t bulk_bytes)
{
	struct daemon *daemon = conn->daemon;
	*arrival = (struct arrival){.conn = conn,
	                            .items = batch->items,
	                            .nitems = batch->nitems,
	                            .batch = items,
	                            .deadline_ms = link_now_ms() + LINK_FRAME_MS,
	                            .source = {.arg = arrival, .take = part_take}};
	if (layout_check(arrival, bulk_bytes) || arrive_stage(conn, bulk_bytes))
		return -1;
	struct memory_stat memory;
	pthread_mutex_lock(&daemon->store->lock);
	memory_stat(daemon->store->memory, &memory);
	pthread_mutex_unlock(&daemon->store->lock);
	if (__atomic_add_fetch(&daemon->arriving, bulk_bytes, __ATOMIC_RELAXED) <= memory.capacity_bytes / ARRIVE_SHARE) {
		arrival->counted = bulk_bytes;
		return 0;
	}
	__atomic_sub_fetch(&daemon->arriving, bulk_bytes, __ATOMIC_RELAXED);
	return parts_stage(arrival, arrival->nitems) ? -1 : 0;
}

int arrival_end(struct arrival *arrival)
{
	/* What nobody asked for: refused before a byte of it was wanted. */
	int error = parts_stage(arrival, arrival->nitems);
	__atomic_sub_fetch(&arrival->conn->daemon->arriving, arrival->counted, __ATOMIC_RELAXED);
	return error ? -1 : 0;
}

/* ---- a save ------------------------------------------------------------------------------------------------------ */

int arrive_tails_check(const struct conn *conn, const struct wire_item *items, uint32_t nitems, uint64_t bulk_bytes)
{
	if (bulk_bytes < 8ull * nitems)
		return err_set(CAIRN_E_INVAL, "a put without its checksums");
	uint64_t end = bulk_bytes - 8ull * nitems;
	for (uint32_t i = 0; i < nitems; i++) {
		const struct wire_item *item = &items[i];
		if (item->offset > end || item->length > end - item->offset)
			return err_set(CAIRN_E_INVAL, "item %u lies outside of the payload", i);
		if (digest_xxh3(conn->stage + item->offset, item->length, 0) != bytes_get64(conn->stage + end + 8ull * i))
			return err_set(CAIRN_E_IO, "put: item %u changed on its way", i);
	}
	return 0;
}
