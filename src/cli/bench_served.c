/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Figures of a cairnd on this server: what a lease through it costs, and what a client copies out of its memory, beside
 * memcpy.
 * Threads: one. Memory: the daemon's pool, a source and a destination, each larger than the last-level cache.
 * Invariant: all three are walked from end to end before a byte is met again, so nothing is served from a cache.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"
#include "cli/cli.h"

enum {
	SERVED_LEASES = 20000,
	SERVED_SETS = 20
};

static const struct bench_figure served_figures[] = {
	{"lease.daemon", "us", "20 us", "take and release a lease through a cairnd, no copy", 20, 1, 1, 0},
	{"local.get", "GB/s", "memcpy, one thread", "cairn_get of parts of 2 MiB through a cairnd, checked", 0, 0.8, 0, 0},
	{"local.put", "GB/s", "memcpy, one thread", "cairn_put of parts of 2 MiB into a cairnd's memory", 0, 0.3, 0, 0},
};

struct served_work {
	struct bench_rig rig;
	struct bench_cpu_sum get, put;
};

static int served_start(struct bench *bench)
{
	struct served_work *work = bench->work = calloc(1, sizeof *work);

	if (!work)
		return say_error("out of memory; free some and try again");
	return bench_rig_start(bench, "served", 0, 2, &work->rig); /* what is got, and what is put */
}

/* Microseconds of taking and releasing one, the median of the sets; 0 after a message. */
static double served_lease(struct bench *bench, struct served_work *work)
{
	const uint32_t each = (bench->quick ? SERVED_LEASES / 4 : SERVED_LEASES) / SERVED_SETS;
	double times[SERVED_SETS];

	for (uint32_t set = 0; set < SERVED_SETS; set++) {
		double start = bench_now();

		for (uint32_t i = 0; i < each; i++) {
			struct cairn_item item = {0};
			struct cairn_lease_info info;
			cairn_lease *lease;

			bench_key(bench_random(bench) % work->rig.parts, &item.key);
			if (cairn_lease_take(work->rig.store, work->rig.space, &item, NULL, &lease))
				return say_error("a lease failed: %s", cairn_error_text()), 0;
			cairn_lease_get_info(lease, &info);
			int good = info.address && info.bytes == BENCH_PART_BYTES;
			cairn_lease_release(work->rig.store, lease);
			if (!good)
				return say_error("a lease is not of what was put"), 0;
		}
		times[set] = (bench_now() - start) * 1e6 / each;
	}
	return bench_quantile(times, SERVED_SETS, 0.5);
}

/* What was got is what was put. */
static int served_same(const struct served_work *work)
{
	return memcmp(work->rig.from, work->rig.to, work->rig.bytes) ? say_error("what was got is not what was put") : 0;
}

static int served_get(struct bench *bench, struct served_work *work, uint32_t round)
{
	const struct bench_rig *rig = &work->rig;
	double limit = round % 2 ? bench_memcpy(rig->to, rig->from, rig->bytes) : 0;

	memset(rig->to, 0, rig->bytes);
	if (round)
		bench_cpu_begin(&work->get, &rig->daemon);
	double value = bench_get_parts(rig->store, rig->space, rig->to, 0, rig->parts, BENCH_BATCH, 0);
	if (round)
		bench_cpu_end(&work->get, &rig->daemon, rig->bytes);
	if (!(value > 0) || served_same(work))
		return CLI_ERROR;
	if (!(round % 2))
		limit = bench_memcpy(rig->to, rig->from, rig->bytes);
	bench_add(bench, round, "local.get", value, limit);
	return 0;
}

int bench_forget_parts(cairn *store, cairn_space *space, uint64_t first, uint64_t parts)
{
	for (uint64_t at = 0; at < parts; at += BENCH_BATCH) {
		cairn_key keys[BENCH_BATCH];

		for (uint32_t i = 0; i < BENCH_BATCH; i++)
			bench_key(first + at + i, &keys[i]);
		if (cairn_drop(store, space, keys, BENCH_BATCH) != BENCH_BATCH)
			return say_error("what was put is not there to be dropped: %s", cairn_error_text());
	}
	return 0;
}

static int served_put(struct bench *bench, struct served_work *work, uint32_t round)
{
	const struct bench_rig *rig = &work->rig;
	double limit = round % 2 ? bench_memcpy(rig->to, rig->from, rig->bytes) : 0;

	if (round)
		bench_cpu_begin(&work->put, &rig->daemon);
	double value =
		bench_put_parts(rig->store, rig->space, rig->from, rig->parts, rig->parts, BENCH_BATCH);
	if (round)
		bench_cpu_end(&work->put, &rig->daemon, rig->bytes);
	if (!(value > 0))
		return CLI_ERROR;
	if (!(round % 2))
		limit = bench_memcpy(rig->to, rig->from, rig->bytes);
	bench_add(bench, round, "local.put", value, limit);
	return bench_forget_parts(rig->store, rig->space, rig->parts, rig->parts);
}

static int served_round(struct bench *bench, uint32_t round)
{
	struct served_work *work = bench->work;
	int error = 0;

	if (bench_wants(bench, "lease.daemon")) {
		double value = served_lease(bench, work);
		if (!(value > 0))
			return CLI_ERROR;
		bench_add(bench, round, "lease.daemon", value, 0);
	}
	if (bench_wants(bench, "local.get"))
		error = served_get(bench, work, round);
	if (!error && bench_wants(bench, "local.put"))
		error = served_put(bench, work, round);
	return error;
}

static int served_finish(struct bench *bench)
{
	struct served_work *work = bench->work;

	bench_cpu_note(bench, "local.get", &work->get);
	bench_cpu_note(bench, "local.put", &work->put);
	return 0;
}

static void served_done(struct bench *bench)
{
	struct served_work *work = bench->work;

	if (!work)
		return;
	bench_rig_done(&work->rig);
	free(work);
}

const struct bench_family bench_served = {
	.name = "served",
	.figures = served_figures,
	.nfigures = sizeof served_figures / sizeof served_figures[0],
	.start = served_start,
	.round = served_round,
	.finish = served_finish,
	.done = served_done,
};
