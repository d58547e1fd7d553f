/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Figures of a store that is full: durable puts far past memory and past the flash budget, twice over, and whether what
 * was acknowledged is there after close and reopen, or was evicted and is known to have been.
 * Threads: one. Memory: a checksum for each part that was put.
 * Invariant: a part counts as lost unless it is read back with the checksum of its put, or the store says that it was
 * evicted.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"
#include "cli/cli.h"

/* A small share of the budget: what flash evicted must be gone from memory too when the store is closed. */
static uint64_t put_memory(const struct bench *bench)
{
	return bench->size / 8 * 3 < (uint64_t)512 << 20 ? bench->size / 8 * 3 : (uint64_t)512 << 20;
}

static const struct bench_figure put_figures[] = {
	{"put.sustained", "GB/s", "fio, fdatasync each 16 MiB", "durable puts until the budget has turned over twice", 0,
     0.9, 0, 0},
	{"put.sustained.lost", "part", "none", "acknowledged parts that are gone, and not evicted, after a reopen", 1, 0, 1,
     1},
	{"put.sustained.amplification", "B/B", "bytes put", "bytes written to the device for each byte put", 1, 1.2, 1, 0},
};

struct put_work {
	cairn *store;
	cairn_space *space;
	struct bench_pump pump;
	char *twin;
	uint64_t parts; /* of a round */
};

static uint64_t put_disk(const struct bench *bench)
{
	return bench->size * 2 + ((uint64_t)64 << 20);
}

static int put_start(struct bench *bench)
{
	struct put_work *work = bench->work = calloc(1, sizeof *work);
	struct bench_plan plan = {.flash_bytes = bench->size, .memory_bytes = put_memory(bench)};

	if (!work)
		return say_error("out of memory; free some and try again");
	work->twin = bench_path(bench, "twin");
	int error = bench_store(bench, "put", &plan, &work->store, &work->space);
	if (!error)
		error = bench_pump_start(bench, &work->pump, work->store, work->space);
	uint64_t budget = bench->size / BENCH_PART_BYTES;
	work->parts = 2 * budget / bench->rounds + 1;
	work->pump.nchecks = budget + (bench->rounds + 1) * work->parts;
	work->pump.checks = calloc(work->pump.nchecks, sizeof *work->pump.checks);
	if (!error && !work->pump.checks)
		error = say_error("out of memory; free some and try again");
	if (!error)
		error = bench_twin(work->twin, work->pump.source, bench->size);
	return error ? error : bench_pump_write(&work->pump, budget);
}

static uint64_t put_written(cairn *store)
{
	struct cairn_stat *stat = calloc(1, sizeof *stat);
	uint64_t bytes;

	stat->size = sizeof *stat;
	cairn_stat(store, stat);
	bytes = stat->device[0].written_bytes;
	free(stat);
	return bytes;
}

static int put_round(struct bench *bench, uint32_t round)
{
	struct put_work *work = bench->work;
	struct bench_fio fio = {.file = work->twin, .write = 1, .flush_each = PUMP_BATCH, .bytes = bench->size};
	double gb_s = 0, limit[2] = {0}, ignored, bytes = (double)(work->parts * BENCH_PART_BYTES);
	int error = 0;

	for (uint32_t i = 0; i < 3 && !error; i++) {
		uint32_t at = (i + round) % 3;

		if (at == 2) {
			uint64_t before = put_written(work->store);
			double start = bench_now();

			error = bench_pump_write(&work->pump, work->parts);
			gb_s = bytes / 1e9 / (bench_now() - start);
			bench_add(bench, round, "put.sustained.amplification", (double)(put_written(work->store) - before) / bytes,
			          0);
			continue;
		}
		fio.depth = at ? 32 : 8;
		error = bench_fio(bench, &fio, &limit[at], &ignored);
	}
	if (!error)
		bench_add_either(bench, round, "put.sustained", gb_s, limit);
	return error;
}

/* 1: the part is not as its put was acknowledged. */
static int put_lost(struct put_work *work, uint64_t number, uint64_t *held)
{
	struct cairn_explanation why = {.size = sizeof why};
	struct cairn_item item = {0};
	cairn_lease *lease;
	cairn_digest space;

	bench_key(number, &item.key);
	if (!cairn_lease_take(work->store, work->space, &item, NULL, &lease)) {
		struct cairn_lease_info info;
		uint64_t stamp;

		cairn_lease_get_info(lease, &info);
		memcpy(&stamp, info.address, sizeof stamp);
		int same = stamp == number && info.bytes == BENCH_PART_BYTES &&
		           cairn_check(info.address, info.bytes) == work->pump.checks[number];
		cairn_lease_release(work->store, lease);
		(*held)++;
		return !same;
	}
	cairn_space_get_id(work->space, &space);
	return cairn_explain(work->store, &space, &item.key, 0, &why) ||
	       (why.reason != CAIRN_WHY_EVICTED && why.reason != CAIRN_WHY_ORPHAN);
}

static int put_finish(struct bench *bench)
{
	struct put_work *work = bench->work;
	struct bench_result *lost = bench_find(bench, "put.sustained.lost");
	struct bench_plan plan = {.memory_bytes = put_memory(bench)};
	uint64_t all = work->pump.next, gone = 0, held = 0, acknowledged = 0;

	bench_choose(bench, "put.sustained", bench_depths_flush);
	bench_step(bench, "reopening and reading all back", 0);
	bench_pump_done(&work->pump);
	if (cairn_close(work->store)) {
		work->store = NULL;
		return say_error("%s", cairn_error_text());
	}
	int error = bench_store(bench, "put", &plan, &work->store, &work->space);
	for (uint64_t number = 0; number < all && number < work->pump.nchecks && !error; number++)
		if (work->pump.checks[number]) {
			acknowledged++;
			gone += (uint64_t)put_lost(work, number, &held);
			error = say_stopped ? CLI_ERROR : 0;
		}
	if (error)
		return error;
	bench_add(bench, 1, "put.sustained.lost", (double)gone, 1);
	snprintf(lost->note, sizeof lost->note, "%llu acknowledged, %llu held, %llu evicted",
	         (unsigned long long)acknowledged, (unsigned long long)held,
	         (unsigned long long)(acknowledged - held - gone));
	/* What fills the budget is to be there: a store that keeps nothing loses nothing either. */
	if (held * BENCH_PART_BYTES < bench->size / 2)
		return say_error("only %llu of %llu parts were held after the reopen", (unsigned long long)held,
		                 (unsigned long long)acknowledged);
	return 0;
}

static void put_done(struct bench *bench)
{
	struct put_work *work = bench->work;

	if (!work)
		return;
	bench_pump_done(&work->pump);
	if (work->store)
		cairn_close(work->store);
	free(work->pump.checks);
	free(work->twin);
	free(work);
}

const struct bench_family bench_put = {
	.name = "put",
	.figures = put_figures,
	.nfigures = sizeof put_figures / sizeof put_figures[0],
	.needs_fio = 1,
	.disk_bytes = put_disk,
	.start = put_start,
	.round = put_round,
	.finish = put_finish,
	.done = put_done,
};
