/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes many parts into a store as fast as it takes them.
 * Threads: one at a time; the library's workers copy. Memory: a source of 64 MiB.
 * Invariant: each part's bytes begin with its number, so no two are the same.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"
#include "cli/cli.h"

#define PUMP_SOURCE_BYTES (PUMP_SLOTS * PUMP_BATCH * BENCH_PART_BYTES)

int bench_pump_start(struct bench *bench, struct bench_pump *pump, cairn *store, cairn_space *space)
{
	pump->store = store;
	pump->space = space;
	pump->durability = CAIRN_DURABLE_FLASH;
	pump->source = bench_map(PUMP_SOURCE_BYTES);
	if (!pump->source)
		return CLI_ERROR;
	bench_fill_random(bench, pump->source, PUMP_SOURCE_BYTES);
	return cairn_queue_open(store, PUMP_SLOTS, &pump->queue) ? say_error("%s", cairn_error_text()) : 0;
}

static int pump_submit(struct bench_pump *pump, uint32_t index, uint32_t count)
{
	struct cairn_call call = {.size = sizeof call, .durability = pump->durability};
	struct bench_slot *slot = &pump->slot[index];

	memset(slot->items, 0, sizeof slot->items);
	slot->first = pump->next;
	slot->count = count;
	for (uint32_t i = 0; i < count; i++) {
		uint8_t *bytes = pump->source + (index * PUMP_BATCH + i) * BENCH_PART_BYTES;
		uint64_t number = pump->next++;

		memcpy(bytes, &number, sizeof number);
		slot->bufs[i] = cairn_buf_of(bytes, BENCH_PART_BYTES);
		slot->items[i].bufs = &slot->bufs[i];
		slot->items[i].nbufs = 1;
		bench_key(number, &slot->items[i].key);
		if (number % PUMP_CHAIN) {
			bench_key(number - 1, &slot->parents[i]);
			slot->items[i].parent = &slot->parents[i];
		}
	}
	if (cairn_put_submit(pump->queue, pump->space, slot->items, count, &call, index))
		return say_error("a put failed: %s", cairn_error_text());
	return 0;
}

/* Takes what has ended; the slot's number, or CLI_ERROR as a negative. */
static int pump_reap(struct bench_pump *pump)
{
	struct cairn_completion done;

	if (cairn_queue_wait(pump->queue, &done, 1, -1) != 1)
		return -say_error("waiting for a put failed: %s", cairn_error_text());
	struct bench_slot *slot = &pump->slot[done.tag];
	for (uint32_t i = 0; i < slot->count; i++) {
		const struct cairn_item *item = &slot->items[i];
		int good = item->status == CAIRN_OK;

		pump->refused += !good;
		if (pump->checks && slot->first + i < pump->nchecks)
			pump->checks[slot->first + i] = good ? item->ret_check : 0;
		if (!good && item->status != CAIRN_E_BUSY)
			return -say_error("a put was refused: %s", cairn_status_text(item->status));
	}
	return (int)done.tag;
}

int bench_pump_write(struct bench_pump *pump, uint64_t parts)
{
	uint32_t in_flight = 0, free_slot = 0;
	int status = 0;

	while (parts && !status && !say_stopped) {
		uint32_t count = parts < PUMP_BATCH ? (uint32_t)parts : PUMP_BATCH;

		if (in_flight < PUMP_SLOTS) {
			free_slot = in_flight;
		} else {
			int slot = pump_reap(pump);

			in_flight--;
			status = slot < 0 ? CLI_ERROR : 0;
			free_slot = slot < 0 ? 0 : (uint32_t)slot;
		}
		if (!status)
			status = pump_submit(pump, free_slot, count);
		in_flight += !status;
		parts -= count;
	}
	while (in_flight--)
		if (pump_reap(pump) < 0)
			status = CLI_ERROR;
	return say_stopped ? CLI_ERROR : status;
}

void bench_pump_done(struct bench_pump *pump)
{
	if (pump->queue)
		cairn_queue_close(pump->queue);
	bench_unmap(pump->source, PUMP_SOURCE_BYTES);
	pump->queue = NULL;
	pump->source = NULL;
}
