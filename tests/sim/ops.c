/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on parts: put, get, lease, match, hint, drop, sync, explain; and what their results must be. */
#include <stdlib.h>
#include <string.h>

#include "sim/run.h"

/* ---- chains ---------------------------------------------------------------------------------------------------- */

static int32_t any_block(struct run *run, int tails)
{
	for (int tries = 0; tries < 20 && run->nblocks; tries++) {
		/* Recent ones more often, so that something is there. */
		uint32_t back = percent(run, 70) ? pick(run, 40) : pick(run, run->nblocks);
		uint32_t number = back < run->nblocks ? run->nblocks - 1 - back : pick(run, run->nblocks);
		if (tails || !run->blocks[number].tail)
			return (int32_t)number;
	}
	return -1;
}

/* A chain to put: a new one, or one that goes on from somewhere, or an old one again. */
static uint32_t draw_chain(struct run *run, int32_t path[PATH])
{
	int32_t last = percent(run, 25) ? -1 : any_block(run, 0);
	uint32_t space = last < 0 ? pick(run, run->config.nspaces) : run->blocks[last].space;
	uint32_t n = last < 0 ? 0 : block_path(run, last, path);
	uint32_t more = last >= 0 && percent(run, 30) ? 0 : 1 + pick(run, 5);
	for (; more && n < PATH; more--) {
		struct block *block = block_new(run, space, last, 0);
		if (!block)
			break;
		path[n++] = last = (int32_t)block_number(run, block);
	}
	return n;
}

static uint32_t draw_bufs(struct run *run, struct cairn_buf bufs[4], uint8_t *at, uint64_t length)
{
	uint32_t n = 0;
	while (length && n < 3) {
		uint64_t take = percent(run, 50) ? length : 1 + pick(run, (uint32_t)length);
		bufs[n++] = cairn_buf_of(at, take);
		at += take;
		length -= take;
	}
	if (length)
		bufs[n++] = cairn_buf_of(at, length);
	return n;
}

struct batch {
	struct cairn_item items[BATCH];
	struct cairn_buf bufs[BATCH][4];
	uint32_t block[BATCH], part[BATCH];
	uint8_t *at[BATCH];
	uint64_t room[BATCH];
	int32_t version[BATCH];
	uint8_t there[BATCH];   /* before the call */
	uint64_t allowed[BATCH];
	uint32_t n;
};

static void batch_add(struct run *run, struct batch *batch, uint32_t number, uint32_t index)
{
	struct block *block = &run->blocks[number];
	uint32_t i = batch->n++;
	memset(&batch->items[i], 0, sizeof(batch->items[i]));
	batch->block[i] = number;
	batch->part[i] = index;
	batch->at[i] = run->arena + (size_t)i * ARENA_PART + pick(run, 64);
	batch->there[i] = (uint8_t)part_there(&block->parts[index]);
	batch->allowed[i] = block->parts[index].allowed;
	batch->items[i].key = block->key;
	batch->items[i].part = (uint16_t)index;
	batch->items[i].bufs = batch->bufs[i];
}

/* Now and then through a queue, with a batch behind it that is cancelled. */
static long batch_call(struct run *run, struct batch *batch, int is_put, uint32_t space, const struct cairn_call *call)
{
	struct cairn_space *handle = run->spaces[space].handle;
	if (!percent(run, 10))
		return is_put ? cairn_put(run->store, handle, batch->items, batch->n, call)
		              : cairn_get(run->store, handle, batch->items, batch->n, call);
	cairn_queue *queue;
	struct cairn_completion done[2];
	struct cairn_item other = {.status = 0};
	if (cairn_queue_open(run->store, 2, &queue))
		run_fail(run, "queue: %s", cairn_error_text());
	int error = is_put ? cairn_put_submit(queue, handle, batch->items, batch->n, call, 7)
	                   : cairn_get_submit(queue, handle, batch->items, batch->n, call, 7);
	if (error || cairn_get_submit(queue, handle, &other, 1, NULL, 8) || cairn_cancel(queue, 8))
		run_fail(run, "submit: %s", cairn_error_text());
	long n = 0;
	while (n < 2)
		n += cairn_queue_wait(queue, done + n, (size_t)(2 - n), -1);
	cairn_queue_close(queue);
	int first = done[0].tag == 7 ? 0 : 1;
	if (done[!first].tag != 8 || done[!first].result != CAIRN_E_CANCELED || other.status != CAIRN_E_CANCELED)
		run_fail(run, "a batch was cancelled, and is not");
	return done[first].result;
}

/* ---- put ------------------------------------------------------------------------------------------------------- */

/* Whether a put may have failed so. */
static void put_failed(struct run *run, const struct batch *batch, uint32_t i, uint32_t timeout_ms)
{
	int32_t status = batch->items[i].status;
	const struct block *block = &run->blocks[batch->block[i]];
	const struct part *part = &block->parts[batch->part[i]];
	int excused = run_troubled(run);
	switch (status) {
	case CAIRN_E_CONFLICT:
		excused = (batch->there[i] || part->stored_op == run->op) && batch->items[i].ret_bytes != batch->room[i];
		break;
	case CAIRN_E_QUOTA:
		excused |= limits_excuse(run, block->space, 1) || limits_excuse(run, block->space, 0);
		break;
	case CAIRN_E_FULL:
		excused |= !run_roomy(run);
		break;
	case CAIRN_E_LATE:
		excused = timeout_ms != 0;
		break;
	case CAIRN_E_BUSY:
		for (int l = 0; l < LEASES; l++)
			excused |= run->leases[l].lease != NULL;
		break;
	case CAIRN_E_IO:
		excused |= run->config.chaos;
		break;
	default:
		excused = 0;
	}
	/* With nothing held, only what is kept for good can be in the way. */
	if (run->unfair && !run_troubled(run) && !session_kept(run, run->spaces[block->space].tenant))
		excused = 0;
	if (!excused)
		run_fail(run, "put: block %u part %u (%llu bytes): %s: %s", batch->block[i], batch->part[i],
		         (unsigned long long)batch->room[i], cairn_status_name(status), cairn_error_text());
}

static void put_judge(struct run *run, const struct batch *batch, uint32_t i, uint32_t durability, uint32_t timeout_ms)
{
	struct block *block = &run->blocks[batch->block[i]];
	struct part *part = &block->parts[batch->part[i]];
	int32_t status = batch->items[i].status, version = batch->version[i];
	int was = batch->there[i], removed = part->removed_op == run->op, stored = part->stored_op == run->op;
	if (status < 0)
		put_failed(run, batch, i, timeout_ms);
	if (status == CAIRN_MISS || status == CAIRN_DAMAGED || status > CAIRN_EXISTED)
		run_fail(run, "put: block %u: status %d", batch->block[i], status);
	if (status == CAIRN_OK && was && !removed)
		run_fail(run, "put: block %u part %u was there, and it says OK", batch->block[i], batch->part[i]);
	if (status == CAIRN_EXISTED && !was && !stored)
		run_fail(run, "put: block %u part %u was not there, and it says EXISTED", batch->block[i], batch->part[i]);
	/* Ours is the one in the store where there was none, or where it went on the way. */
	int ours = status == CAIRN_OK || (status < 0 && status != CAIRN_E_CONFLICT && !was && stored);
	if (ours) {
		part->current = version;
		part->next = version + 1 < VERSIONS && percent(run, 60) ? version + 1 : version;
		run->put_bytes += (part_length(run, block, part, version) + 3 * 4096ull) / 4096 * 4096;
	} else if (status == CAIRN_EXISTED || status == CAIRN_E_CONFLICT || (!stored && !was)) {
		if (!(batch->allowed[i] >> version & 1))
			part->allowed &= ~(1ull << version);
	}
	if (was && removed && part_there(part))
		part->current = -1; /* which of them it is, the order of things within the call decides */
	if (ours && part->must)
		part->must_version = -1; /* an older copy is on a device that is away */
	if (status >= 0 && durability == CAIRN_DURABLE_FLASH) {
		if (!part->flash && !removed)
			run_fail(run, "put: block %u part %u is acknowledged as durable, and not in flash", batch->block[i],
			         batch->part[i]);
		if (part->flash) {
			model_must(run, part);
			run->tally->durable++;
		}
	}
}

static void put_batch(struct run *run, struct batch *batch, uint32_t space, uint32_t durability, uint32_t timeout_ms)
{
	struct cairn_call call = {.size = sizeof(call), .timeout_ms = timeout_ms, .durability = durability,
	                          .background = (uint32_t)percent(run, 10)};
	run_begin(run);
	run->acting = run->spaces[space].tenant;
	long good = batch_call(run, batch, 1, space, &call);
	run_end(run, "put");
	long counted = 0;
	if (run->readonly) {
		for (uint32_t i = 0; i < batch->n; i++) {
			run->blocks[batch->block[i]].parts[batch->part[i]].allowed = batch->allowed[i];
			if (good != CAIRN_E_RDONLY || batch->items[i].status != CAIRN_E_RDONLY)
				run_fail(run, "put into a store that is open read-only: %ld", good);
		}
		return;
	}
	if (good < 0)
		run_fail(run, "put: %s: %s", cairn_status_name((int)good), cairn_error_text());
	for (uint32_t i = 0; i < batch->n; i++) {
		put_judge(run, batch, i, durability, timeout_ms);
		counted += batch->items[i].status == CAIRN_OK || batch->items[i].status == CAIRN_EXISTED;
	}
	if (counted != good)
		run_fail(run, "put returns %ld, and %ld items are good", good, counted);
	run->tally->puts += batch->n;
}

void op_put_items(struct run *run, const int32_t *blocks, uint32_t nblocks, uint32_t durability, uint32_t timeout_ms)
{
	static struct batch batch;
	batch.n = 0;
	for (uint32_t b = 0; b < nblocks; b++) {
		struct block *block = &run->blocks[blocks[b]];
		for (uint32_t p = 0; p < block->nparts && batch.n < BATCH; p++) {
			struct part *part = &block->parts[p];
			if (run->spaces[block->space].optional && p + 1 == block->nparts && percent(run, 30))
				continue;
			uint32_t i = batch.n;
			batch_add(run, &batch, (uint32_t)blocks[b], p);
			int32_t version = part->next;
			uint32_t length = part_length(run, block, part, version);
			part_fill(part, version, batch.at[i], length);
			batch.items[i].nbufs = draw_bufs(run, batch.bufs[i], batch.at[i], length);
			batch.items[i].parent = block->parent >= 0 ? &run->blocks[block->parent].key : NULL;
			batch.items[i].flags = block->tail ? CAIRN_ITEM_TAIL : 0;
			batch.version[i] = version;
			batch.room[i] = length;
			part->allowed |= 1ull << version;
		}
	}
	if (!batch.n)
		return;
	run_note(run, "put %u parts of %u blocks (%d..%d), durability %u", batch.n, nblocks, blocks[0], blocks[nblocks - 1],
	         durability);
	put_batch(run, &batch, run->blocks[blocks[0]].space, durability, timeout_ms);
}

void op_put(struct run *run)
{
	int32_t path[PATH];
	uint32_t n = draw_chain(run, path);
	if (!n)
		return;
	uint32_t from = n > 1 && percent(run, 60) ? pick(run, n) : 0;
	uint32_t durability = percent(run, 45) ? CAIRN_DURABLE_FLASH : CAIRN_DURABLE_NONE;
	uint32_t timeout_ms = percent(run, 5) ? 1 + pick(run, 50) : 0;
	op_put_items(run, path + from, n - from, durability, timeout_ms);
}

/* ---- get ------------------------------------------------------------------------------------------------------- */

enum { CANARY = 0xa5 };

static int all_bytes(const uint8_t *bytes, uint64_t length, uint8_t value)
{
	for (uint64_t i = 0; i < length; i++)
		if (bytes[i] != value)
			return 0;
	return 1;
}

static void get_judge(struct run *run, const struct batch *batch, uint32_t i, uint32_t timeout_ms)
{
	struct block *block = &run->blocks[batch->block[i]];
	struct part *part = &block->parts[batch->part[i]];
	const struct cairn_item *item = &batch->items[i];
	uint32_t number = batch->block[i], index = batch->part[i];
	int removed = part->removed_op == run->op, excused = run_troubled(run) || run->config.chaos;
	uint64_t room = batch->room[i];
	if (!all_bytes(batch->at[i] + room, 16, CANARY))
		run_fail(run, "get: block %u part %u: wrote behind its buffer", number, index);
	switch (item->status) {
	case CAIRN_OK:
		if (!batch->there[i])
			run_fail(run, "get: block %u part %u is served, and was not there", number, index);
		if (item->ret_bytes > room)
			run_fail(run, "get: block %u part %u: %llu bytes in a buffer of %llu", number, index,
			         (unsigned long long)item->ret_bytes, (unsigned long long)room);
		model_served(run, block, index, batch->at[i], item->ret_bytes, "get");
		if (item->ret_check != cairn_check(batch->at[i], item->ret_bytes))
			run_fail(run, "get: block %u part %u: ret_check is not the check of its bytes", number, index);
		run->tally->hits++;
		return;
	case CAIRN_MISS:
		excused = !batch->there[i] || removed;
		break;
	case CAIRN_DAMAGED:
		excused = run->config.chaos || run->config.damage || run->config.errors.rot_read_ppm;
		if (!all_bytes(batch->at[i], room, 0) && !all_bytes(batch->at[i], room, CANARY))
			run_fail(run, "get: block %u part %u is damaged, and its buffer is not zero", number, index);
		part->must = 0;
		return excused ? (void)0 : run_fail(run, "get: block %u part %u is damaged; nothing was", number, index);
	case CAIRN_E_SIZE:
		excused = item->ret_bytes > room && batch->there[i];
		break;
	case CAIRN_E_BUSY:
		for (int l = 0; l < LEASES; l++)
			excused |= run->leases[l].lease != NULL;
		break;
	case CAIRN_E_QUOTA:
		excused = limits_excuse(run, block->space, 1);
		break;
	case CAIRN_E_LATE:
		excused = timeout_ms != 0;
		break;
	case CAIRN_E_IO:
		break;
	default:
		excused = 0;
	}
	if (!all_bytes(batch->at[i], room, CANARY) && !all_bytes(batch->at[i], room, 0))
		run_fail(run, "get: block %u part %u: %s, and its buffer was written", number, index,
		         cairn_status_name(item->status));
	if (!excused)
		run_fail(run, "get: block %u part %u: %s (memory %u, flash %u): %s", number, index,
		         cairn_status_name(item->status), part->memory, part->flash, cairn_error_text());
}

static void get_batch(struct run *run, struct batch *batch, uint32_t space, uint32_t timeout_ms)
{
	struct cairn_call call = {.size = sizeof(call), .timeout_ms = timeout_ms, .background = (uint32_t)percent(run, 10)};
	run_begin(run);
	run->acting = run->spaces[space].tenant;
	long good = batch_call(run, batch, 0, space, &call);
	run_end(run, "get");
	long counted = 0;
	for (uint32_t i = 0; i < batch->n; i++) {
		get_judge(run, batch, i, timeout_ms);
		counted += batch->items[i].status == CAIRN_OK;
	}
	if (counted != good)
		run_fail(run, "get returns %ld, and %ld items are good", good, counted);
	run->tally->gets += batch->n;
}

static void get_add(struct run *run, struct batch *batch, uint32_t number, uint32_t index, int small)
{
	uint32_t i = batch->n;
	batch_add(run, batch, number, index);
	const struct part *part = &run->blocks[number].parts[index];
	uint32_t room = run->spaces[run->blocks[number].space].block_bytes;
	if (!room || run->blocks[number].tail)
		room = part->length;
	room = small ? 1 + pick(run, room) : room + 8;
	room = room < PART_BYTES ? room : PART_BYTES;
	batch->room[i] = room;
	memset(batch->at[i], CANARY, room + 16);
	batch->items[i].nbufs = draw_bufs(run, batch->bufs[i], batch->at[i], room);
}

void op_get(struct run *run)
{
	static struct batch batch;
	int32_t first = any_block(run, 1), path[PATH];
	if (first < 0)
		return;
	uint32_t space = run->blocks[first].space, n = block_path(run, first, path);
	batch.n = 0;
	for (uint32_t b = percent(run, 50) ? 0 : pick(run, n); b < n; b++)
		for (uint32_t p = 0; p < run->blocks[path[b]].nparts && batch.n < BATCH; p++)
			if (percent(run, 90))
				get_add(run, &batch, (uint32_t)path[b], p, percent(run, 2));
	run_note(run, "get %u parts up to block %d", batch.n, first);
	if (batch.n)
		get_batch(run, &batch, space, percent(run, 5) ? 1 + pick(run, 20) : 0);
}

void op_get_block(struct run *run, uint32_t number)
{
	static struct batch batch;
	batch.n = 0;
	for (uint32_t p = 0; p < run->blocks[number].nparts; p++)
		get_add(run, &batch, number, p, 0);
	get_batch(run, &batch, run->blocks[number].space, 0);
}

void op_get_all(struct run *run)
{
	static struct batch batch;
	run_note(run, "get everything");
	for (uint32_t space = 0; space < run->config.nspaces; space++) {
		batch.n = 0;
		for (uint32_t b = 0; b < run->nblocks && !run->dead; b++) {
			if (run->blocks[b].space != space)
				continue;
			for (uint32_t p = 0; p < run->blocks[b].nparts; p++)
				get_add(run, &batch, b, p, 0);
			if (batch.n + PARTS > BATCH) {
				get_batch(run, &batch, space, 0);
				batch.n = 0;
			}
		}
		if (batch.n && !run->dead)
			get_batch(run, &batch, space, 0);
	}
}

/* ---- leases ---------------------------------------------------------------------------------------------------- */

static void lease_look(struct run *run, const struct lease *lease)
{
	struct cairn_lease_info info;
	const struct block *block = &run->blocks[lease->block];
	const struct part *part = &block->parts[lease->part];
	cairn_lease_get_info(lease->lease, &info);
	if (info.check != cairn_check(info.address, info.bytes))
		run_fail(run, "lease: block %u part %u: its bytes changed", lease->block, lease->part);
	if (lease->version >= 0 &&
	    (part_length(run, block, part, lease->version) != info.bytes ||
	     !pattern_same(pattern_mix(part->seed, (uint64_t)lease->version), info.address, info.bytes)))
		run_fail(run, "lease: block %u part %u: its bytes are others now", lease->block, lease->part);
}

void lease_end(struct run *run, struct lease *lease)
{
	if (!lease->lease)
		return;
	lease_look(run, lease);
	cairn_lease_release(run->store, lease->lease);
	lease->lease = NULL;
}

void op_lease(struct run *run)
{
	struct lease *lease = &run->leases[pick(run, LEASES)];
	if (lease->lease) {
		run_note(run, "release a lease of block %u", lease->block);
		lease_end(run, lease);
		return;
	}
	int32_t number = any_block(run, 1);
	if (number < 0)
		return;
	struct block *block = &run->blocks[number];
	uint32_t index = pick(run, block->nparts);
	struct part *part = &block->parts[index];
	struct cairn_item item = {.key = block->key, .part = (uint16_t)index};
	int was = part_there(part);
	run_note(run, "lease block %d part %u", number, index);
	run_begin(run);
	run->acting = run->spaces[block->space].tenant;
	int status = cairn_lease_take(run->store, run->spaces[block->space].handle, &item, NULL, &lease->lease);
	run_end(run, "lease");
	run->tally->leases++;
	int excused = run_troubled(run) || run->config.chaos;
	if (status == CAIRN_OK) {
		struct cairn_lease_info info;
		cairn_lease_get_info(lease->lease, &info);
		model_served(run, block, index, info.address, info.bytes, "lease");
		lease->block = (uint32_t)number;
		lease->part = index;
		lease->version = part_version(run, block, part, info.address, info.bytes);
		return;
	}
	lease->lease = NULL;
	if (status == CAIRN_MISS)
		excused = !was || part->removed_op == run->op;
	if (status == CAIRN_DAMAGED) {
		excused = run->config.chaos || run->config.damage || run->config.errors.rot_read_ppm;
		part->must = 0;
	}
	if (status == CAIRN_E_BUSY || (status == CAIRN_E_QUOTA && limits_excuse(run, block->space, 1)))
		excused = 1; /* the bound of leases */
	if (!excused)
		run_fail(run, "lease: block %d part %u: %s", number, index, cairn_status_name(status));
}

/* ---- matches, hints -------------------------------------------------------------------------------------------- */

void match_end(struct run *run, struct match *match)
{
	if (match->match)
		cairn_match_release(run->store, match->match);
	match->match = NULL;
}

static void match_get(struct run *run, const struct match *match)
{
	static struct batch batch;
	batch.n = 0;
	for (uint32_t b = 0; b < match->nblocks && batch.n < BATCH; b++)
		for (uint32_t p = 0; p < run->blocks[match->blocks[b]].nparts && batch.n < BATCH; p++)
			get_add(run, &batch, (uint32_t)match->blocks[b], p, 0);
	if (batch.n)
		get_batch(run, &batch, run->blocks[match->blocks[0]].space, 0);
}

void op_match(struct run *run)
{
	struct match *match = &run->matches[pick(run, MATCHES)];
	if (match->match && percent(run, 50)) {
		run_note(run, "get the answer of a match");
		match_get(run, match);
		return;
	}
	match_end(run, match);
	int32_t last = any_block(run, 0);
	if (last < 0)
		return;
	cairn_key keys[PATH];
	uint32_t n = block_path(run, last, match->blocks), timeout_ms = percent(run, 30) ? 1 + pick(run, 3000) : 0;
	for (uint32_t i = 0; i < n; i++)
		keys[i] = run->blocks[match->blocks[i]].key;
	struct cairn_chain chain = {.keys = keys, .nkeys = n};
	uint32_t there = 0;
	while (there < n && block_there(run, &run->blocks[match->blocks[there]]))
		there++;
	run_begin(run);
	int status = cairn_match_take(run->store, run->spaces[run->blocks[last].space].handle, &chain, 1, 0, timeout_ms,
	                              &match->match);
	match->deadline_ns = run_now(run) + (timeout_ms ? timeout_ms : 30000) * 1000000ull;
	match->nblocks = there;
	match->dropped = 0;
	for (uint32_t i = 0; i < there; i++) {
		const struct block *block = &run->blocks[match->blocks[i]];
		match->parts[i] = 0;
		for (uint32_t p = 0; p < block->nparts; p++)
			match->parts[i] |= (uint8_t)(part_there(&block->parts[p]) << p);
	}
	run_end(run, "match");
	if (status) {
		match->match = NULL;
		run_fail(run, "match: %s", cairn_status_name(status));
	}
	struct cairn_match_info info;
	cairn_match_get_info(match->match, &info);
	run_note(run, "match of %u blocks up to %d: %u there", n, last, there);
	if (run->shut && info.tokens < (uint64_t)there * BLOCK_TOKENS)
		match->nblocks = there = (uint32_t)(info.tokens / BLOCK_TOKENS); /* what is stepped over is not offered */
	if (info.tokens != (uint64_t)there * BLOCK_TOKENS)
		run_fail(run, "match: %llu tokens up to block %d; %u blocks are there", (unsigned long long)info.tokens, last,
		         there);
	run->tally->matches++;
	if (there && percent(run, 50))
		match_get(run, match);
}

void op_hint(struct run *run)
{
	int32_t last = any_block(run, 0), path[PATH];
	if (last < 0)
		return;
	cairn_key keys[PATH];
	uint32_t n = block_path(run, last, path);
	for (uint32_t i = 0; i < n; i++)
		keys[i] = run->blocks[path[i]].key;
	struct cairn_chain chain = {.keys = keys, .nkeys = n};
	int hint = 1 + (int)pick(run, 3);
	for (uint32_t i = 0; i < n && hint == CAIRN_HINT_CLOSE; i++)
		run->blocks[path[i]].closed = 1;
	run_note(run, "hint %d for block %d", hint, last);
	run_begin(run);
	int status = cairn_hint(run->store, run->spaces[run->blocks[last].space].handle, &chain, hint);
	run_end(run, "hint");
	if (status)
		run_fail(run, "hint: %s", cairn_status_name(status));
}

/* ---- drop, sync, explain --------------------------------------------------------------------------------------- */

static int drop_result(struct run *run, long result, const char *what)
{
	run->tally->drops++;
	run->decisions++;
	run->missed |= run->readonly ? 0 : (uint32_t)run->gone;
	if (result >= 0)
		return 1;
	if (run->readonly && result == CAIRN_E_RDONLY)
		return 0;
	if (!(run_troubled(run) && result == CAIRN_E_IO) && !(result == CAIRN_E_FULL && run->decisions > 60))
		run_fail(run, "%s: %s: %s", what, cairn_status_name((int)result), cairn_error_text());
	return 0;
}

void op_drop(struct run *run)
{
	int32_t last = any_block(run, 1), path[PATH];
	if (last < 0)
		return;
	cairn_key keys[PATH];
	uint32_t n = percent(run, 60) ? 1 : block_path(run, last, path);
	if (n == 1)
		path[0] = last;
	for (uint32_t i = 0; i < n; i++)
		keys[i] = run->blocks[path[i]].key;
	run_note(run, "drop %u blocks up to %d", n, last);
	run->decisions += n;
	run_begin(run);
	long removed = cairn_drop(run->store, run->spaces[run->blocks[last].space].handle, keys, n);
	run_end(run, "drop");
	int certain = drop_result(run, removed, "drop");
	for (uint32_t i = 0; i < n && !run->readonly; i++)
		model_drop(run, &run->blocks[path[i]], certain);
}

void op_drop_wide(struct run *run)
{
	char tenant[16];
	uint32_t space = pick(run, run->config.nspaces);
	int whole = percent(run, 30);
	tenant[0] = 't';
	tenant[1] = (char)('0' + run->spaces[space].tenant);
	tenant[2] = 0;
	run_note(run, whole ? "drop tenant %s" : "drop space of tenant %s", tenant);
	run_begin(run);
	long removed = whole ? cairn_drop_tenant(run->store, tenant)
	                     : cairn_drop_space(run->store, &run->spaces[space].id);
	run_end(run, "drop");
	int certain = drop_result(run, removed, whole ? "drop tenant" : "drop space");
	if (run->readonly)
		return;
	for (uint32_t b = 0; b < run->nblocks; b++) {
		uint32_t at = run->blocks[b].space;
		if (whole ? run->spaces[at].tenant == run->spaces[space].tenant : at == space)
			model_drop(run, &run->blocks[b], certain);
	}
	sessions_dropped(run, whole ? run->spaces[space].tenant : -1, whole ? -1 : (int)space, certain);
}

void op_sync(struct run *run)
{
	run_note(run, "sync");
	run_begin(run);
	int error = cairn_sync(run->store);
	run_end(run, "sync");
	if (error && !run->unsynced && !run->config.chaos && !(error == CAIRN_E_FULL && !run_roomy(run)))
		run_fail(run, "sync: %s", cairn_status_name(error));
	run->unsynced = 0;
	if (error || run->readonly)
		return;
	for (uint32_t b = 0; b < run->nblocks; b++)
		for (uint32_t i = 0; i < run->blocks[b].nparts; i++) {
			const struct part *part = &run->blocks[b].parts[i];
			if (part->removed_op == run->op && part->removed_reason == CAIRN_WHY_DEVICE && !part->flash)
				run_fail(run, "sync returns 0, and block %u part %u was not flushed", b, i);
		}
	model_durable_all(run);
}

void op_explain(struct run *run)
{
	int32_t number = any_block(run, 1);
	if (number < 0)
		return;
	const struct block *block = &run->blocks[number];
	struct cairn_explanation told = {0};
	uint32_t index = pick(run, block->nparts);
	run_begin(run);
	int error = cairn_explain(run->store, &run->spaces[block->space].id, &block->key, index, &told);
	run_end(run, "explain");
	if (error)
		run_fail(run, "explain: %s", cairn_status_name(error));
	if ((told.reason == CAIRN_WHY_PRESENT) != part_there(&block->parts[index]))
		run_fail(run, "explain: block %d part %u: \"%s\"", number, index, cairn_reason_name(told.reason));
}
