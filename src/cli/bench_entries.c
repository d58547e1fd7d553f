/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Figures of a large catalog: a store of many small blocks in flash, how soon it is open again, and how long a match of
 * a long prompt takes in it, alone and while others make it evict.
 *
 * The blocks are real: 4 KiB each, put through the API, in chains of 8192. All chains take their turn, so that a match
 * meets entries that no cache of one core holds.
 * Threads: one writer beside the matches of the last step. Memory: the store's catalog.
 * Invariant: the store is open in one process at a time; the child that dies with it open ends before it is opened
 * again.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/bench.h"
#include "cli/cli.h"

#define ENTRIES_BLOCK_BYTES   4096u
#define ENTRIES_MEMORY_BYTES  ((uint64_t)64 << 20)
#define ENTRIES_REOPEN_BLOCKS 5000000.0
#define ENTRIES_BUSY_FIRST    ((uint64_t)1 << 40) /* numbers of the writer's parts */
enum {
	ENTRIES_CHAIN = 8192,
	ENTRIES_BATCH = 128,
	ENTRIES_MATCHES = 256,
	ENTRIES_BUSY_MATCHES = 300
};

static struct bench_figure entries_figures[] = {
	{"match.8192", "us", "200 us", "match a prompt of 8192 blocks (take; release is beside it)", 200, 1, 1, 0},
	{"match.8192.p99", "us", "its median", "the same, p99 while puts evict", 0, 3, 1, 0},
	{"reopen.5m", "s", "3 s at 5 M blocks", "open a store that was closed", 3, 1, 1, 0},
	{"reopen.5m.killed", "s", "3 s at 5 M blocks", "open a store whose process was killed", 3, 1, 1, 0},
	{"reopen.5m.memory", "MB", "the catalog's bound", "memory that the open store takes beside its pool", 0, 1, 1, 0},
	{"match.8192.daemon", "us", "400 us", "match.8192 through a cairnd (take; release is beside it)", 400, 1, 1, 0},
};

struct entries_work {
	cairn *store;
	cairn_space *space;
	uint64_t entries;
	cairn_key *keys; /* of a chain */
	struct bench_pump pump;
	double release_us[BENCH_ROUNDS + 1], idle_p99_us[BENCH_ROUNDS + 1];
	volatile int stop;
	int failed;
};

/* Flash of so many blocks: a segment's footer has room for one entry to 8 KiB. */
static uint64_t entries_flash(uint64_t entries)
{
	return entries * 2 * ENTRIES_BLOCK_BYTES + entries * ENTRIES_BLOCK_BYTES / 2 + ((uint64_t)512 << 20);
}

static uint64_t entries_count(const struct bench *bench)
{
	struct statvfs space;

	if (bench->quick)
		return 8 * ENTRIES_CHAIN;
	if (!bench->full)
		return 128 * ENTRIES_CHAIN;
	if (!statvfs(bench->dir, &space) &&
	    entries_flash(2048 * ENTRIES_CHAIN) < (uint64_t)space.f_bavail * space.f_frsize / 10 * 9)
		return 2048 * ENTRIES_CHAIN;
	return 640 * ENTRIES_CHAIN;
}

static uint64_t entries_disk(const struct bench *bench)
{
	return entries_flash(entries_count(bench));
}

static uint64_t entries_catalog(const struct entries_work *work)
{
	return work->entries * 72;
}

/* ---- making it --------------------------------------------------------------------------------------------------- */

static int entries_fill(struct bench *bench, struct entries_work *work)
{
	static uint8_t bytes[ENTRIES_BATCH][ENTRIES_BLOCK_BYTES];
	static struct cairn_item items[ENTRIES_BATCH];
	static struct cairn_buf bufs[ENTRIES_BATCH];
	cairn_key parents[ENTRIES_BATCH];

	bench_fill_random(bench, bytes[0], sizeof bytes);
	for (uint64_t number = 0; number < work->entries && !say_stopped; number += ENTRIES_BATCH) {
		memset(items, 0, sizeof items);
		for (uint32_t i = 0; i < ENTRIES_BATCH; i++) {
			uint64_t own = number + i;

			memcpy(bytes[i], &own, sizeof own);
			bufs[i] = cairn_buf_of(bytes[i], ENTRIES_BLOCK_BYTES);
			items[i].bufs = &bufs[i];
			items[i].nbufs = 1;
			bench_key(own, &items[i].key);
			if (own % ENTRIES_CHAIN) {
				bench_key(own - 1, &parents[i]);
				items[i].parent = &parents[i];
			}
		}
		if (cairn_put(work->store, work->space, items, ENTRIES_BATCH, NULL) != ENTRIES_BATCH)
			return say_error("a put failed: %s", cairn_error_text());
	}
	if (say_stopped)
		return CLI_ERROR;
	return cairn_sync(work->store) ? say_error("%s", cairn_error_text()) : 0;
}

static int entries_open(struct bench *bench, struct entries_work *work, uint64_t flash_bytes)
{
	struct bench_plan plan = {
		.flash_bytes = flash_bytes, .memory_bytes = ENTRIES_MEMORY_BYTES, .catalog_bytes = entries_catalog(work)};

	return bench_store(bench, "entries", &plan, &work->store, &work->space);
}

static int entries_start(struct bench *bench)
{
	struct entries_work *work = bench->work = calloc(1, sizeof *work);
	double scale;

	if (!work)
		return say_error("out of memory; free some and try again");
	work->entries = entries_count(bench);
	work->keys = malloc(ENTRIES_CHAIN * sizeof *work->keys);
	if (!work->keys)
		return say_error("out of memory; free some and try again");
	scale = (double)work->entries / ENTRIES_REOPEN_BLOCKS;
	entries_figures[2].limit = entries_figures[3].limit = 3 * scale;
	if (work->entries > 4000000) { /* the goal of a catalog that no cache holds at all */
		entries_figures[0].limit = 1000;
		entries_figures[5].limit = 1200;
	}
	for (uint32_t i = 0; i < sizeof entries_figures / sizeof entries_figures[0]; i++) {
		struct bench_result *result = bench_find(bench, entries_figures[i].name);

		snprintf(result->note, sizeof result->note, "%s", say_many(work->entries, "block", "blocks"));
		if (i == 2 || i == 3)
			snprintf(result->limit_name, sizeof result->limit_name, "3 s at 5 M, scaled");
		if (i == 0 || i == 5)
			snprintf(result->limit_name, sizeof result->limit_name, "%.0f us", entries_figures[i].limit);
	}
	int error = entries_open(bench, work, entries_flash(work->entries));
	return error ? error : entries_fill(bench, work);
}

/* ---- reopen ------------------------------------------------------------------------------------------------------ */

/* Anonymous memory of this process in bytes: the pool is a file's, and does not count. */
static double entries_rss(void)
{
	char line[256];
	double kib = 0;
	FILE *file = fopen("/proc/self/status", "r");

	while (file && fgets(line, sizeof line, file))
		if (!strncmp(line, "RssAnon:", 8))
			kib = strtod(line + 8, NULL);
	if (file)
		fclose(file);
	return kib * 1024;
}

static int entries_all_there(struct entries_work *work)
{
	struct cairn_stat *stat = calloc(1, sizeof *stat);

	stat->size = sizeof *stat;
	cairn_stat(work->store, stat);
	uint64_t parts = stat->tier[CAIRN_TIER_FLASH].parts;
	free(stat);
	if (parts < work->entries)
		return say_error("only %llu of %llu blocks were there after a reopen", (unsigned long long)parts,
		                 (unsigned long long)work->entries);
	return 0;
}

static int entries_close(struct entries_work *work)
{
	cairn *store = work->store;

	work->store = NULL;
	return cairn_close(store) ? say_error("%s", cairn_error_text()) : 0;
}

/* A process that dies with the store open: the checkpoint is used up, and the next open reads footers. */
static int entries_kill(struct bench *bench, struct entries_work *work)
{
	pid_t child = fork();
	int status;

	if (!child) {
		if (entries_open(bench, work, 0))
			_exit(1);
		raise(SIGKILL);
	}
	if (child < 0 || waitpid(child, &status, 0) != child || !WIFSIGNALED(status))
		return say_error("a process that opens the store and is killed could not be made");
	return 0;
}

static int entries_reopen(struct bench *bench, struct entries_work *work, double *ret_s)
{
	double start = bench_now();
	int error = entries_open(bench, work, 0);

	*ret_s = bench_now() - start;
	return error ? error : entries_all_there(work);
}

static int entries_round_reopen(struct bench *bench, struct entries_work *work, uint32_t round)
{
	double seconds;

	if (!bench_wants(bench, "reopen.5m") && !bench_wants(bench, "reopen.5m.killed") &&
	    !bench_wants(bench, "reopen.5m.memory"))
		return 0;
	int error = entries_close(work);
	double before = entries_rss();
	error = error ? error : entries_reopen(bench, work, &seconds);
	if (error)
		return error;
	bench_add(bench, round, "reopen.5m", seconds, 0);
	/* The remembered keys are an eighth on top; the rest is tables of a size that does not grow. */
	bench_add(bench, round, "reopen.5m.memory", (entries_rss() - before) / 1e6,
	          ((double)entries_catalog(work) * 9 / 8 + (64 << 20)) / 1e6);
	if (!bench_wants(bench, "reopen.5m.killed"))
		return 0;
	error = entries_close(work);
	error = error ? error : entries_kill(bench, work);
	error = error ? error : entries_reopen(bench, work, &seconds);
	if (!error)
		bench_add(bench, round, "reopen.5m.killed", seconds, 0);
	return error;
}

/* ---- match ------------------------------------------------------------------------------------------------------- */

/* Microseconds of one match, and of its release. 0, 1: not all of the chain is there, or CLI_ERROR. */
static int entries_match(struct entries_work *work, uint64_t number, double *ret_us, double *ret_release_us)
{
	struct cairn_chain chain = {.keys = work->keys, .nkeys = ENTRIES_CHAIN};
	struct cairn_match_info info;
	cairn_match *match;

	for (uint32_t i = 0; i < ENTRIES_CHAIN; i++)
		bench_key(number * ENTRIES_CHAIN + i, &work->keys[i]);
	double start = bench_now();
	if (cairn_match_take(work->store, work->space, &chain, 1, 0, 0, &match))
		return say_error("%s", cairn_error_text());
	cairn_match_get_info(match, &info);
	double taken = bench_now();
	cairn_match_release(work->store, match);
	*ret_us = (taken - start) * 1e6;
	*ret_release_us = (bench_now() - taken) * 1e6;
	return info.tokens != ENTRIES_CHAIN * 16;
}

/* Many matches; their times. 0, or CLI_ERROR after a message. */
static int entries_matches(struct bench *bench, struct entries_work *work, double take[ENTRIES_MATCHES],
                           double release[ENTRIES_MATCHES])
{
	uint64_t chains = work->entries / ENTRIES_CHAIN, first = bench_random(bench) % chains;

	for (uint32_t i = 0; i < ENTRIES_MATCHES; i++) {
		/* A step that meets each chain before one comes again. */
		uint64_t number = (first + i * (chains > ENTRIES_MATCHES ? chains / ENTRIES_MATCHES : 1)) % chains;

		if (entries_match(work, number, &take[i], &release[i]))
			return say_error("a chain that was put is not there in full");
	}
	return 0;
}

static int entries_round_match(struct bench *bench, struct entries_work *work, uint32_t round)
{
	double take[ENTRIES_MATCHES], release[ENTRIES_MATCHES];

	if (!bench_wants(bench, "match.8192") && !bench_wants(bench, "match.8192.p99"))
		return 0;
	if (entries_matches(bench, work, take, release))
		return CLI_ERROR;
	bench_add(bench, round, "match.8192", bench_quantile(take, ENTRIES_MATCHES, 0.5), 0);
	work->idle_p99_us[round] = bench_quantile(take, ENTRIES_MATCHES, 0.99);
	work->release_us[round] = bench_quantile(release, ENTRIES_MATCHES, 0.5);
	return 0;
}

static int entries_round(struct bench *bench, uint32_t round)
{
	int error = entries_round_reopen(bench, bench->work, round);

	return error ? error : entries_round_match(bench, bench->work, round);
}

/* The same store behind a cairnd, which has it for as long as this takes. */
static int entries_served(struct bench *bench, struct entries_work *work)
{
	double take[ENTRIES_MATCHES], release[ENTRIES_MATCHES], releases[BENCH_ROUNDS + 1];
	struct bench_plan plan = {.memory_bytes = ENTRIES_MEMORY_BYTES, .catalog_bytes = entries_catalog(work)};
	struct bench_daemon daemon = {0};
	struct bench_result *result = bench_find(bench, "match.8192.daemon");
	int error = entries_close(work);

	error = error ? error : bench_daemon_start(bench, "entries", &plan, &daemon);
	error = error ? error : bench_connect(daemon.local, NULL, &work->store, &work->space);
	for (uint32_t round = 0; round <= bench->rounds && !error; round++) {
		bench_step(bench, "matching through a cairnd", round);
		error = say_stopped ? CLI_ERROR : entries_matches(bench, work, take, release);
		if (error)
			break;
		releases[round] = bench_quantile(release, ENTRIES_MATCHES, 0.5);
		bench_add(bench, round, "match.8192.daemon", bench_quantile(take, ENTRIES_MATCHES, 0.5), 0);
	}
	if (!error)
		snprintf(result->note, sizeof result->note, "%s; release %.0f us", say_many(work->entries, "block", "blocks"),
		         bench_quantile(releases + 1, bench->rounds, 0.5));
	if (work->store)
		cairn_close(work->store);
	work->store = NULL;
	bench_daemon_end(&daemon);
	return error ? error : entries_open(bench, work, 0);
}

static void *entries_writer(void *arg)
{
	struct entries_work *work = arg;

	while (!work->stop && !work->failed)
		work->failed = bench_pump_write(&work->pump, PUMP_BATCH * PUMP_SLOTS);
	return NULL;
}

/* Matches of a few chains that stay in use, while a writer fills flash and goes on. */
static int entries_busy(struct bench *bench, struct entries_work *work)
{
	static double times[ENTRIES_BUSY_MATCHES];
	uint64_t chains = work->entries / ENTRIES_CHAIN < 4 ? work->entries / ENTRIES_CHAIN : 4;

	for (uint32_t round = 1; round <= bench->rounds; round++) {
		uint32_t count = 0;

		for (uint32_t tries = 0; count < ENTRIES_BUSY_MATCHES && tries < 2 * ENTRIES_BUSY_MATCHES; tries++) {
			double ignored;
			int result = entries_match(work, tries % chains, &times[count], &ignored);

			if (say_stopped || result == CLI_ERROR || work->failed)
				return CLI_ERROR;
			count += !result;
			usleep(2000);
		}
		if (count < ENTRIES_BUSY_MATCHES / 2)
			return say_error("chains in use were evicted while they were matched");
		double p99 = bench_quantile(times, count, 0.99);
		bench_add(bench, round, "match.8192.p99", p99, bench_quantile(times, count, 0.5));
	}
	return 0;
}

static int entries_finish(struct bench *bench)
{
	struct entries_work *work = bench->work;
	struct bench_result *match = bench_find(bench, "match.8192");
	pthread_t writer;

	if (match->wanted)
		snprintf(match->note, sizeof match->note, "%s; release %.0f us", say_many(work->entries, "block", "blocks"),
		         bench_quantile(work->release_us + 1, bench->rounds, 0.5));
	int error = bench_wants(bench, "match.8192.daemon") ? entries_served(bench, work) : 0;
	if (error || !bench_wants(bench, "match.8192.p99"))
		return error;
	/* Where the machine itself takes the processor away for so long, eviction is not what is seen. */
	struct bench_result *tail = bench_find(bench, "match.8192.p99");
	snprintf(tail->note, sizeof tail->note, "%s; p99 without puts %.0f us", say_many(work->entries, "block", "blocks"),
	         bench_quantile(work->idle_p99_us + 1, bench->rounds, 0.5));
	bench_step(bench, "matching while puts evict", 0);
	error = bench_pump_start(bench, &work->pump, work->store, work->space);
	work->pump.durability = CAIRN_DURABLE_NONE;
	work->pump.next = ENTRIES_BUSY_FIRST;
	/* What is free is filled first. */
	uint64_t parts = (entries_flash(work->entries) - work->entries * 2 * ENTRIES_BLOCK_BYTES) / BENCH_PART_BYTES;
	error = error ? error : bench_pump_write(&work->pump, parts);
	if (!error && pthread_create(&writer, NULL, entries_writer, work))
		error = say_error("a thread can not be made");
	if (error)
		return error;
	error = entries_busy(bench, work);
	work->stop = 1;
	pthread_join(writer, NULL);
	return error ? error : work->failed;
}

static void entries_done(struct bench *bench)
{
	struct entries_work *work = bench->work;

	if (!work)
		return;
	bench_pump_done(&work->pump);
	if (work->store)
		cairn_close(work->store);
	free(work->keys);
	free(work);
}

const struct bench_family bench_entries = {
	.name = "entries",
	.figures = entries_figures,
	.nfigures = sizeof entries_figures / sizeof entries_figures[0],
	.disk_bytes = entries_disk,
	.start = entries_start,
	.round = entries_round,
	.finish = entries_finish,
	.done = entries_done,
};
