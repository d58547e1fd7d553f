/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Figures of flash, beside fio on the same file system: reads into the pool, writes, and reads while writes run.
 *
 * The store's file is overwritten once before the clock starts, and so is fio's, which has the same size: a first write
 * into new blocks costs the file system more. fio reads the store's own file.
 * Threads: one writer thread while reads are timed beside writes. Memory: a small pool, so that reads come from flash.
 * Invariant: bytes count as read only where the store says that they came from flash, and were checked.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/bench.h"
#include "cli/cli.h"

enum {
	FLASH_AHEAD = 16,
	FLASH_DEPTHS = 4,
	FLASH_LATENCIES = 200
};
static const uint32_t flash_depths[FLASH_DEPTHS] = {4, 8, 16, 32};

const char *const bench_depths_flush[2] = {"fio, depth 8, fdatasync/16M", "fio, depth 32, fdatasync/16M"};

static const struct bench_figure flash_figures[] = {
	{"flash.read", "GB/s", "fio", "parts of 2 MiB from flash into memory, checked", 0, 0.95, 0, 0},
	{"flash.read.cpu", "s/GB", "fio's + 0.15", "CPU seconds for each GB of that", 0, 1, 1, 0},
	{"flash.write", "GB/s", "fio, fdatasync each 16 MiB", "durable puts of parts of 2 MiB", 0, 0.95, 0, 0},
	{"flash.write.none", "GB/s", "fio, no flush", "puts with durability none, until all are written", 0, 0.95, 0, 0},
	{"flash.read.p99", "ms", "idle p99", "one read while writes run at full rate", 0, 2, 1, 0},
};

struct flash_work {
	uint64_t memory_bytes;
	uint64_t *numbers; /* of parts to read: at most `parts` */
	cairn *store;
	cairn_space *space;
	struct bench_pump pump;
	char *file, *twin; /* the store's, and one as large for fio to write */
	uint64_t parts;    /* that are read in a round */
	/* By depth and round: which is best is known only at the end. */
	double fio_gb_s[FLASH_DEPTHS][BENCH_ROUNDS + 1], fio_cpu[FLASH_DEPTHS][BENCH_ROUNDS + 1];
	double cpu[BENCH_ROUNDS + 1];
	int failed; /* the writer thread did */
	volatile int stop;
};

static uint64_t flash_memory(const struct bench *bench)
{
	return bench->size / 8 * 3 < (uint64_t)512 << 20 ? bench->size / 8 * 3 : (uint64_t)512 << 20;
}

static uint64_t flash_disk(const struct bench *bench)
{
	return bench->size * 3 + ((uint64_t)64 << 20);
}

static uint64_t flash_written(cairn *store)
{
	struct cairn_stat *stat = calloc(1, sizeof *stat);

	if (!stat)
		return 0;
	stat->size = sizeof *stat;
	cairn_stat(store, stat);
	uint64_t bytes = stat->tier[CAIRN_TIER_FLASH].written_bytes;
	free(stat);
	return bytes;
}

/* The numbers of those parts from `first` on that lie in flash alone: reading them is reading flash. (Counting hits
 * would not do: what was read ahead is a hit in memory when it is asked for.) Returns how many there are. */
static uint64_t flash_only(struct flash_work *work, uint64_t first)
{
	cairn_digest space;
	uint64_t count = 0;

	cairn_space_get_id(work->space, &space);
	for (uint64_t part = first; part < first + work->parts; part++) {
		struct cairn_explanation found = {.size = sizeof found};
		cairn_key key;

		bench_key(part, &key);
		if (!cairn_explain(work->store, &space, &key, 0, &found) && found.reason == CAIRN_WHY_PRESENT &&
		    found.tier == CAIRN_TIER_FLASH)
			work->numbers[count++] = part;
	}
	return count;
}

int bench_twin(const char *path, const uint8_t *bytes, uint64_t length)
{
	const uint64_t step = PUMP_BATCH * BENCH_PART_BYTES;
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_DIRECT, 0600), error = fd < 0;

	error = error || posix_fallocate(fd, 0, (off_t)length);
	for (uint64_t at = 0; at < length && !error && !say_stopped; at += step)
		error = pwrite(fd, bytes, step, (off_t)at) != (ssize_t)step;
	error = error || fdatasync(fd);
	if (fd >= 0)
		close(fd);
	return error ? say_error("%s can not be made for O_DIRECT: free some space, or give a STORE that is no tmpfs",
	                         say_name(path))
	             : 0;
}

static int flash_start(struct bench *bench)
{
	struct flash_work *work = bench->work = calloc(1, sizeof *work);
	/* Twice the figure's data, of which most can be read back however the rest is evicted. */
	struct bench_plan plan = {.flash_bytes = bench->size * 2, .memory_bytes = flash_memory(bench)};

	if (!work)
		return say_error("out of memory; free some and try again");
	work->memory_bytes = flash_memory(bench);
	work->parts = bench->size / BENCH_PART_BYTES;
	work->numbers = calloc(work->parts, sizeof *work->numbers);
	if (!work->numbers)
		return say_error("out of memory; free some and try again");
	work->file = bench_path(bench, "flash/flash.cairn");
	work->twin = bench_path(bench, "twin");
	int error = bench_store(bench, "flash", &plan, &work->store, &work->space);
	if (!error)
		error = bench_pump_start(bench, &work->pump, work->store, work->space);
	if (!error && (bench_wants(bench, "flash.write") || bench_wants(bench, "flash.write.none")))
		error = bench_twin(work->twin, work->pump.source, bench->size);
	return error ? error : bench_pump_write(&work->pump, work->parts * 9 / 4);
}

/* ---- reads ------------------------------------------------------------------------------------------------------- */

/* The parts that were put last and lie in flash, oldest first: they are hinted at some way ahead, and leased one after
 * the other. */
static int flash_read(struct flash_work *work, double *ret_gb_s, double *ret_cpu_s_gb)
{
	uint64_t count = flash_only(work, work->pump.next - work->parts), hinted = 0;
	double start = bench_now(), cpu = bench_cpu();

	if (count < work->parts / 2)
		return say_error("too few parts are left in flash to read; give a larger --size");
	for (uint64_t part = 0; part < count && !say_stopped; part++) {
		struct cairn_item item = {0};
		cairn_lease *lease;

		if (part + FLASH_AHEAD / 2 >= hinted && hinted < count) {
			cairn_key keys[FLASH_AHEAD];
			struct cairn_chain chain = {.keys = keys};

			for (; hinted < part + FLASH_AHEAD && hinted < count; hinted++)
				bench_key(work->numbers[hinted], &keys[chain.nkeys++]);
			cairn_hint(work->store, work->space, &chain, CAIRN_HINT_RESUME);
		}
		bench_key(work->numbers[part], &item.key);
		if (cairn_lease_take(work->store, work->space, &item, NULL, &lease))
			return say_error("part %llu of %llu could not be read: %s", (unsigned long long)part,
			                 (unsigned long long)count, cairn_status_text(item.status));
		cairn_lease_release(work->store, lease);
	}
	double seconds = bench_now() - start, gb = (double)(count * BENCH_PART_BYTES) / 1e9;
	*ret_gb_s = gb / seconds;
	*ret_cpu_s_gb = (bench_cpu() - cpu) / gb;
	return say_stopped ? CLI_ERROR : 0;
}

static int flash_round_read(struct bench *bench, struct flash_work *work, uint32_t round)
{
	double gb_s = 0, cpu = 0;
	int error = 0;

	/* cairn stands at another place among the depths in each round. */
	for (uint32_t i = 0; i <= FLASH_DEPTHS && !error; i++) {
		uint32_t at = (i + round) % (FLASH_DEPTHS + 1);
		struct bench_fio fio = {.file = work->file, .bytes = bench->size};

		if (at == FLASH_DEPTHS) {
			error = flash_read(work, &gb_s, &cpu);
			continue;
		}
		fio.depth = flash_depths[at];
		error = bench_fio(bench, &fio, &work->fio_gb_s[at][round], &work->fio_cpu[at][round]);
	}
	work->cpu[round] = cpu;
	if (!error) /* the limit is put in when the best depth is known */
		bench_add(bench, round, "flash.read", gb_s, 1);
	return error;
}

/* The depth whose median is best is the limit, in every round: the best of each round would be the luckiest. */
static void flash_choose(struct bench *bench, struct flash_work *work)
{
	struct bench_result *read = bench_find(bench, "flash.read"), *cpu = bench_find(bench, "flash.read.cpu");
	double best = 0, sorted[BENCH_ROUNDS];
	uint32_t depth = 0;

	for (uint32_t i = 0; i < FLASH_DEPTHS; i++) {
		memcpy(sorted, &work->fio_gb_s[i][1], bench->rounds * sizeof sorted[0]);
		double median = bench_quantile(sorted, bench->rounds, 0.5);
		depth = median > best ? i : depth;
		best = median > best ? median : best;
	}
	for (uint32_t i = 0; i < read->count; i++)
		read->limit[i] = work->fio_gb_s[depth][i + 1];
	for (uint32_t round = 1; round <= bench->rounds; round++)
		bench_add(bench, round, "flash.read.cpu", work->cpu[round], work->fio_cpu[depth][round] + 0.15);
	snprintf(read->limit_name, sizeof read->limit_name, "fio, depth %u", flash_depths[depth]);
	snprintf(cpu->limit_name, sizeof cpu->limit_name, "fio's at depth %u + 0.15", flash_depths[depth]);
}

/* ---- writes ------------------------------------------------------------------------------------------------------ */

static int flash_write(struct flash_work *work, uint32_t durability, double *ret_gb_s)
{
	uint64_t before = flash_written(work->store), now, bytes = work->parts * BENCH_PART_BYTES;

	work->pump.durability = durability;
	double start = bench_now();
	int error = bench_pump_write(&work->pump, work->parts);
	/* A put of durability none is over when it is in memory; what counts is when it is in flash. */
	for (now = 0; !error && durability == CAIRN_DURABLE_NONE && !say_stopped;) {
		now = flash_written(work->store);
		if (now - before >= bytes || bench_now() - start > 120)
			break;
		usleep(200);
	}
	*ret_gb_s = (double)bytes / 1e9 / (bench_now() - start);
	return error;
}

static int flash_round_write(struct bench *bench, struct flash_work *work, uint32_t round, const char *name,
                             uint32_t durability)
{
	struct bench_fio fio = {.file = work->twin, .write = 1, .bytes = bench->size};
	double value = 0, limits[2] = {0}, ignored;
	int error = 0;

	if (!bench_wants(bench, name))
		return 0;
	fio.flush_each = durability == CAIRN_DURABLE_FLASH ? PUMP_BATCH : 0;
	for (uint32_t i = 0; i < 3 && !error; i++)
		switch ((i + round) % 3) {
		case 0:
			error = flash_write(work, durability, &value);
			break;
		case 1:
			fio.depth = 8;
			error = bench_fio(bench, &fio, &limits[0], &ignored);
			break;
		default:
			fio.depth = 32;
			error = bench_fio(bench, &fio, &limits[1], &ignored);
			break;
		}
	if (!error)
		bench_add_either(bench, round, name, value, limits);
	return error;
}

/* ---- reads beside writes ----------------------------------------------------------------------------------------- */

static void *flash_writer(void *arg)
{
	struct flash_work *work = arg;

	while (!work->stop && !work->failed)
		work->failed = bench_pump_write(&work->pump, PUMP_BATCH * PUMP_SLOTS);
	return NULL;
}

/* The p99 of single reads of parts that lie in flash, chosen anywhere but among the last, which are in memory. */
static int flash_latency(struct bench *bench, struct flash_work *work, double *ret_p99_ms)
{
	double times[FLASH_LATENCIES];
	uint32_t count = 0;

	for (uint32_t tries = 0; count < FLASH_LATENCIES && tries < 8 * FLASH_LATENCIES && !say_stopped; tries++) {
		/* The writer moves this on meanwhile; an old value only chooses an older part. */
		uint64_t newest = __atomic_load_n(&work->pump.next, __ATOMIC_RELAXED), back = work->parts / 2;
		uint64_t number = newest - work->memory_bytes / BENCH_PART_BYTES - bench_random(bench) % back;
		struct cairn_item item = {0};
		cairn_lease *lease;

		bench_key(number, &item.key);
		double start = bench_now();
		if (cairn_lease_take(work->store, work->space, &item, NULL, &lease))
			continue;
		if (item.ret_tier == CAIRN_TIER_FLASH)
			times[count++] = (bench_now() - start) * 1e3;
		cairn_lease_release(work->store, lease);
	}
	*ret_p99_ms = bench_quantile(times, count, 0.99);
	if (say_stopped)
		return CLI_ERROR;
	return count < FLASH_LATENCIES / 2
	           ? say_error("too few parts are left in flash to time reads; give a larger --size")
	           : 0;
}

static int flash_round_latency(struct bench *bench, struct flash_work *work, uint32_t round)
{
	double idle = 0, busy = 0;
	pthread_t writer;

	if (!bench_wants(bench, "flash.read.p99"))
		return 0;
	int error = flash_latency(bench, work, &idle);
	work->pump.durability = CAIRN_DURABLE_FLASH;
	work->stop = work->failed = 0;
	if (!error && pthread_create(&writer, NULL, flash_writer, work))
		error = say_error("a thread can not be made");
	if (error)
		return error;
	usleep(50000);
	error = flash_latency(bench, work, &busy);
	work->stop = 1;
	pthread_join(writer, NULL);
	if (!error && !work->failed)
		bench_add(bench, round, "flash.read.p99", busy, idle);
	return error ? error : work->failed;
}

static int flash_round(struct bench *bench, uint32_t round)
{
	struct flash_work *work = bench->work;
	int error = 0;

	if (bench_wants(bench, "flash.read") || bench_wants(bench, "flash.read.cpu"))
		error = flash_round_read(bench, work, round);
	if (!error)
		error = flash_round_write(bench, work, round, "flash.write", CAIRN_DURABLE_FLASH);
	if (!error)
		error = flash_round_write(bench, work, round, "flash.write.none", CAIRN_DURABLE_NONE);
	return error ? error : flash_round_latency(bench, work, round);
}

static int flash_finish(struct bench *bench)
{
	if (bench_wants(bench, "flash.read") || bench_wants(bench, "flash.read.cpu"))
		flash_choose(bench, bench->work);
	bench_choose(bench, "flash.write", bench_depths_flush);
	bench_choose(bench, "flash.write.none", (const char *const[]){"fio, depth 8, no flush", "fio, depth 32, no flush"});
	return 0;
}

static void flash_done(struct bench *bench)
{
	struct flash_work *work = bench->work;

	if (!work)
		return;
	bench_pump_done(&work->pump);
	if (work->store)
		cairn_close(work->store);
	free(work->numbers);
	free(work->file);
	free(work->twin);
	free(work);
}

const struct bench_family bench_flash = {
	.name = "flash",
	.figures = flash_figures,
	.nfigures = sizeof flash_figures / sizeof flash_figures[0],
	.needs_fio = 1,
	.disk_bytes = flash_disk,
	.start = flash_start,
	.round = flash_round,
	.finish = flash_finish,
	.done = flash_done,
};
