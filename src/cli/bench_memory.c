/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Figures of memory: what a reader copies out of the memory tier beside memcpy, and what a lease costs.
 * Threads: one. Memory: a pool, a source and a destination, each larger than the last-level cache.
 * Invariant: all three are walked from end to end before a byte is met again, so nothing is served from a cache.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/bench.h"
#include "cli/cli.h"

enum {
	MEMORY_BATCH = 8,
	MEMORY_LEASES = 20000,
	MEMORY_SETS = 20
};

static const struct bench_figure memory_figures[] = {
	{"memory.get", "GB/s", "memcpy, one thread", "lease and copy parts of 2 MiB out of memory, unchecked", 0, 0.9, 0,
     0},
	{"memory.get.checked", "GB/s", "memcpy, one thread", "cairn_get of parts of 2 MiB in memory, checked", 0, 0.8, 0,
     0},
	{"lease.local", "us", "3 us", "take and release a lease of a part in memory, no copy", 3, 1, 1, 0},
};

struct memory_work {
	cairn *store;
	cairn_space *space;
	uint8_t *from, *to;
	uint64_t bytes, parts;
};

/* Four times the last-level cache, but a sixth of the memory at most: there are three such areas. */
static uint64_t memory_bytes(const struct bench *bench)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), free = (uint64_t)sysconf(_SC_AVPHYS_PAGES) * page;
	long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
	uint64_t bytes = 4 * (cache > 0 ? (uint64_t)cache : (uint64_t)64 << 20);

	if (bench->quick)
		bytes = (uint64_t)256 << 20;
	bytes = bytes > free / 6 ? free / 6 : bytes;
	bytes = bytes < (uint64_t)64 << 20 ? (uint64_t)64 << 20 : bytes;
	return bytes / (MEMORY_BATCH * BENCH_PART_BYTES) * (MEMORY_BATCH * BENCH_PART_BYTES);
}

static int memory_put(struct memory_work *work)
{
	for (uint64_t part = 0; part < work->parts; part++) {
		struct cairn_buf buf = cairn_buf_of(work->from + part * BENCH_PART_BYTES, BENCH_PART_BYTES);
		struct cairn_item item = {.bufs = &buf, .nbufs = 1};

		bench_key(part, &item.key);
		if (cairn_put(work->store, work->space, &item, 1, NULL) != 1)
			return say_error("a put into memory failed: %s", cairn_error_text());
	}
	return 0;
}

static int memory_start(struct bench *bench)
{
	struct memory_work *work = bench->work = calloc(1, sizeof *work);
	struct bench_plan plan = {.no_flash = 1};

	if (!work)
		return say_error("out of memory; free some and try again");
	work->bytes = memory_bytes(bench);
	work->parts = work->bytes / BENCH_PART_BYTES;
	work->from = bench_map(work->bytes);
	work->to = work->from ? bench_map(work->bytes) : NULL;
	if (!work->to)
		return CLI_ERROR;
	bench_fill_random(bench, work->from, work->bytes);
	plan.memory_bytes = work->bytes + work->bytes / 8 + ((uint64_t)16 << 20);
	int error = bench_store(bench, "memory", &plan, &work->store, &work->space);
	return error ? error : memory_put(work);
}

/* GB/s; 0 after a message. */
static double memory_unchecked(struct memory_work *work)
{
	double start = bench_now();

	for (uint64_t part = 0; part < work->parts; part++) {
		struct cairn_item item = {0};
		struct cairn_lease_info info;
		cairn_lease *lease;

		bench_key(part, &item.key);
		if (cairn_lease_take(work->store, work->space, &item, NULL, &lease)) {
			say_error("a lease failed: %s", cairn_error_text());
			return 0;
		}
		cairn_lease_get_info(lease, &info);
		memcpy(work->to + part * BENCH_PART_BYTES, info.address, BENCH_PART_BYTES);
		cairn_lease_release(work->store, lease);
	}
	return (double)work->bytes / 1e9 / (bench_now() - start);
}

static double memory_checked(struct memory_work *work)
{
	double start = bench_now();

	for (uint64_t part = 0; part < work->parts; part += MEMORY_BATCH) {
		struct cairn_buf bufs[MEMORY_BATCH];
		struct cairn_item items[MEMORY_BATCH] = {0};

		for (uint64_t i = 0; i < MEMORY_BATCH; i++) {
			bufs[i] = cairn_buf_of(work->to + (part + i) * BENCH_PART_BYTES, BENCH_PART_BYTES);
			items[i].bufs = &bufs[i];
			items[i].nbufs = 1;
			bench_key(part + i, &items[i].key);
		}
		if (cairn_get(work->store, work->space, items, MEMORY_BATCH, NULL) != MEMORY_BATCH) {
			say_error("a get from memory failed: %s", cairn_error_text());
			return 0;
		}
	}
	return (double)work->bytes / 1e9 / (bench_now() - start);
}

/* Microseconds of taking and releasing one; 0 after a message. */
static double memory_lease(struct bench *bench, struct memory_work *work)
{
	cairn_key *keys = malloc(MEMORY_LEASES * sizeof *keys);
	double times[MEMORY_SETS] = {0};
	int error = !keys;

	for (uint32_t i = 0; i < MEMORY_LEASES && keys; i++)
		bench_key(bench_random(bench) % work->parts, &keys[i]);
	for (uint32_t set = 0; set < MEMORY_SETS; set++) {
		double start = bench_now();

		for (uint32_t i = set * (MEMORY_LEASES / MEMORY_SETS); i < (set + 1) * (MEMORY_LEASES / MEMORY_SETS) && !error;
		     i++) {
			struct cairn_item item = {.key = keys[i]};
			cairn_lease *lease;

			error = cairn_lease_take(work->store, work->space, &item, NULL, &lease);
			if (!error)
				cairn_lease_release(work->store, lease);
		}
		times[set] = (bench_now() - start) * 1e6 / (MEMORY_LEASES / MEMORY_SETS);
	}
	free(keys);
	if (!error)
		return bench_quantile(times, MEMORY_SETS, 0.5);
	say_error("a lease failed: %s", cairn_error_text());
	return 0;
}

static int memory_round(struct bench *bench, uint32_t round)
{
	struct memory_work *work = bench->work;
	double (*const run[])(struct memory_work *) = {memory_unchecked, memory_checked};
	double limit = round % 2 ? bench_memcpy(work->to, work->from, work->bytes) : 0;

	for (uint32_t i = 0; i < 2; i++) {
		if (!bench_wants(bench, memory_figures[i].name))
			continue;
		double value = run[i](work);
		if (!(value > 0))
			return CLI_ERROR;
		if (!(round % 2) || i)
			limit = bench_memcpy(work->to, work->from, work->bytes);
		bench_add(bench, round, memory_figures[i].name, value, limit);
	}
	if (bench_wants(bench, "lease.local")) {
		double value = memory_lease(bench, work);
		if (!(value > 0))
			return CLI_ERROR;
		bench_add(bench, round, "lease.local", value, 0);
	}
	return 0;
}

static void memory_done(struct bench *bench)
{
	struct memory_work *work = bench->work;

	if (!work)
		return;
	if (work->store)
		cairn_close(work->store);
	bench_unmap(work->from, work->bytes);
	bench_unmap(work->to, work->bytes);
	free(work);
}

const struct bench_family bench_memory = {
	.name = "memory",
	.figures = memory_figures,
	.nfigures = sizeof memory_figures / sizeof memory_figures[0],
	.start = memory_start,
	.round = memory_round,
	.done = memory_done,
};
