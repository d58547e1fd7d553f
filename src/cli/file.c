/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files as sessions of scheme file/1, for put and get: the record in the session's state, and a mover that keeps one
 * batch on its way while the other is read or written.
 * Threads: one; the store works on batches in its own. Memory: FILE_SLOTS batches of 16 MiB, whatever the file's size.
 * Invariant: a slot's bytes, items and parents are not touched between file_submit and file_wait.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"

/* ---- the record -------------------------------------------------------------------------------------------------- */

static const char record_magic[8] = {'c', 'a', 'i', 'r', 'n', 'P', 'U', 'T'};
enum { RECORD_VERSION = 1 };

static void record_put(uint8_t *bytes, uint64_t value, uint32_t length)
{
	for (uint32_t i = 0; i < length; i++)
		bytes[i] = (uint8_t)(value >> 8 * i);
}

static uint64_t record_get(const uint8_t *bytes, uint32_t length)
{
	uint64_t value = 0;

	for (uint32_t i = 0; i < length; i++)
		value |= (uint64_t)bytes[i] << 8 * i;
	return value;
}

void file_record_encode(uint64_t bytes, uint8_t record[FILE_RECORD_BYTES])
{
	memcpy(record, record_magic, sizeof record_magic);
	record_put(record + 8, RECORD_VERSION, 4);
	record_put(record + 12, FILE_BLOCK_BYTES, 4);
	record_put(record + 16, bytes, 8);
}

int file_record_decode(const void *record, uint64_t length, uint64_t *ret_bytes)
{
	const uint8_t *at = record;

	if (!at || length < FILE_RECORD_BYTES || memcmp(at, record_magic, sizeof record_magic) != 0)
		return -1;
	if (record_get(at + 8, 4) != RECORD_VERSION || record_get(at + 12, 4) != FILE_BLOCK_BYTES)
		return -2;
	*ret_bytes = record_get(at + 16, 8);
	return 0;
}

int file_record_of(const cairn_session *session, uint64_t *ret_bytes)
{
	uint64_t length = 0;
	const void *state = cairn_session_state(session, &length);

	return file_record_decode(state, length, ret_bytes);
}

/* ---- the mover --------------------------------------------------------------------------------------------------- */

int file_start(struct file_mover *mover, cairn *store, cairn_space *space, int putting, uint32_t durability)
{
	memset(mover, 0, sizeof *mover);
	mover->store = store;
	mover->space = space;
	mover->putting = putting;
	mover->call = (struct cairn_call){.size = sizeof mover->call, .durability = putting ? durability : 0};
	for (uint32_t i = 0; i < FILE_SLOTS; i++)
		if (!(mover->slot[i].bytes = malloc(FILE_BATCH * FILE_BLOCK_BYTES)))
			return say_error("out of memory; %s are needed", say_size(FILE_SLOTS * FILE_BATCH * FILE_BLOCK_BYTES));
	if (cairn_derive_start(space, 0, &mover->derive) || cairn_queue_open(store, FILE_SLOTS, &mover->queue))
		return say_error("%s", cairn_error_text());
	return 0;
}

int file_submit(struct file_mover *mover, uint32_t index)
{
	struct file_slot *slot = &mover->slot[index];
	int status = (mover->putting ? cairn_put_submit : cairn_get_submit)(mover->queue, mover->space, slot->items,
	                                                                    slot->count, &mover->call, index);

	if (status)
		return say_error("%s", cairn_error_text());
	slot->in_flight = 1;
	return 0;
}

static int file_passes(int32_t status)
{
	return status == CAIRN_E_BUSY || status == CAIRN_E_IO;
}

/* One item again, in the form that says why it fails. Busy passes when the store has written or freed something. */
static void file_retry(struct file_mover *mover, struct cairn_item *item)
{
	struct timespec start, now, pause = {.tv_nsec = 5000000};
	uint32_t failures = 0;

	clock_gettime(CLOCK_MONOTONIC, &start);
	for (;;) {
		long done = (mover->putting ? cairn_put : cairn_get)(mover->store, mover->space, item, 1, &mover->call);

		if (done < 0)
			item->status = (int32_t)done;
		/* What is there now is what the try before this one left: it was not there before this program. */
		if (item->status == CAIRN_EXISTED)
			item->status = CAIRN_OK;
		if (item->status >= 0)
			return;
		failures += item->status != CAIRN_E_BUSY;
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (!file_passes(item->status) || failures > 2 || say_stopped ||
		    difftime(now.tv_sec, start.tv_sec) > FILE_TRIES_S)
			break;
		nanosleep(&pause, NULL);
	}
	if (!mover->why[0])
		snprintf(mover->why, sizeof mover->why, "%s", cairn_error_text());
}

void file_wait(struct file_mover *mover, uint32_t index)
{
	struct file_slot *slot = &mover->slot[index];

	while (slot->in_flight) {
		struct cairn_completion done[FILE_SLOTS];
		long count = cairn_queue_wait(mover->queue, done, FILE_SLOTS, -1);

		for (long i = 0; i < count; i++) {
			struct file_slot *ended = &mover->slot[done[i].tag];

			ended->in_flight = 0;
			/* An error of the whole batch: each item is asked why. */
			for (uint32_t j = 0; done[i].result < 0 && j < ended->count; j++)
				ended->items[j].status = (int32_t)done[i].result;
		}
	}
	for (uint32_t i = 0; i < slot->count && !mover->why[0]; i++)
		if (slot->items[i].status < 0)
			file_retry(mover, &slot->items[i]);
}

void file_done(struct file_mover *mover)
{
	if (mover->queue)
		cairn_queue_close(mover->queue);
	cairn_derive_free(mover->derive);
	for (uint32_t i = 0; i < FILE_SLOTS; i++)
		free(mover->slot[i].bytes);
	memset(mover, 0, sizeof *mover);
}
