/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rounds of `cairn bench`, what is shown meanwhile, and what families need: stores, keys, memory, clocks.
 * Threads: one. Memory: the caller's.
 * Invariant: everything on disk lies below bench->dir.
 */
#include <errno.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "cli/bench.h"
#include "cli/cli.h"

/* ---- figures ----------------------------------------------------------------------------------------------------- */

struct bench_result *bench_find(struct bench *bench, const char *name)
{
	for (uint32_t i = 0; i < bench->nresults; i++)
		if (!strcmp(bench->results[i].figure->name, name))
			return &bench->results[i];
	return NULL;
}

int bench_wants(struct bench *bench, const char *name)
{
	struct bench_result *result = bench_find(bench, name);

	return result && result->wanted;
}

void bench_add(struct bench *bench, uint32_t round, const char *name, double value, double limit)
{
	struct bench_result *result = bench_find(bench, name);

	if (!round || !result || !result->wanted || result->count == BENCH_ROUNDS)
		return;
	result->value[result->count] = value;
	result->limit[result->count++] = limit > 0 ? limit : result->figure->limit;
}

void bench_add_either(struct bench *bench, uint32_t round, const char *name, double value, const double limits[2])
{
	struct bench_result *result = bench_find(bench, name);
	uint32_t before = result ? result->count : 0;

	bench_add(bench, round, name, value, limits[0]);
	if (result && result->count > before)
		result->other[before] = limits[1];
}

void bench_choose(struct bench *bench, const char *name, const char *const limit_names[2])
{
	struct bench_result *result = bench_find(bench, name);
	double first[BENCH_ROUNDS], second[BENCH_ROUNDS];

	if (!result || !result->count)
		return;
	memcpy(first, result->limit, sizeof first);
	memcpy(second, result->other, sizeof second);
	int other = bench_quantile(second, result->count, 0.5) > bench_quantile(first, result->count, 0.5);
	if (other)
		memcpy(result->limit, result->other, sizeof result->limit);
	snprintf(result->limit_name, sizeof result->limit_name, "%s", limit_names[other]);
}

/* ---- rounds ------------------------------------------------------------------------------------------------------ */

void bench_step_end(struct bench *bench)
{
	if (bench->shown)
		fputs("\r\033[K", stderr);
	bench->shown = 0;
}

void bench_step(struct bench *bench, const char *what, uint32_t round)
{
	enum {
		WIDTH = 24
	};
	uint32_t full = bench->steps ? bench->step * WIDTH / bench->steps : 0;
	char text[48] = "";

	full = full < WIDTH ? full : WIDTH;
	if (round)
		snprintf(text, sizeof text, ", round %u of %u", round, bench->rounds);
	if (cli.json || cli.quiet)
		return;
	if (!isatty(STDERR_FILENO)) {
		fprintf(stderr, "bench: %s: %s%s\n", bench->step_name, what, text);
		return;
	}
	fprintf(stderr, "\r[%.*s%*s] %3u %% %s: %s%s\033[K", (int)full, "========================", (int)(WIDTH - full), "",
	        bench->steps ? bench->step * 100 / bench->steps : 0, bench->step_name, what, text);
	fflush(stderr);
	bench->shown = 1;
}

static int run_wanted(struct bench *bench, const struct bench_family *family)
{
	for (uint32_t i = 0; i < family->nfigures; i++)
		if (bench_wants(bench, family->figures[i].name))
			return 1;
	return 0;
}

static int run_family(struct bench *bench, const struct bench_family *family)
{
	bench->work = NULL;
	bench->step_name = family->name;
	bench_step(bench, "getting ready", 0);
	int status = family->start(bench);
	for (uint32_t round = 0; round <= bench->rounds && !status; round++) {
		if (say_stopped)
			status = CLI_ERROR;
		else {
			bench->step++;
			bench_step(bench, round ? "measuring" : "warming up", round);
			status = family->round(bench, round);
		}
	}
	if (!status && family->finish)
		status = family->finish(bench);
	family->done(bench);
	bench_clear(bench->dir);
	return status;
}

int bench_run(struct bench *bench, const struct bench_family *const *families, size_t count)
{
	int status = 0;

	for (size_t i = 0; i < count; i++)
		if (run_wanted(bench, families[i]))
			bench->steps += bench->rounds + 1;
	for (size_t i = 0; i < count && !status; i++)
		if (run_wanted(bench, families[i]))
			status = say_stopped ? CLI_ERROR : run_family(bench, families[i]);
	bench_step_end(bench);
	return status;
}

/* ---- clocks, memory ---------------------------------------------------------------------------------------------- */

double bench_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

double bench_cpu(void)
{
	struct rusage use;

	getrusage(RUSAGE_SELF, &use);
	return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
	       (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1e-6;
}

static uint64_t run_mix(uint64_t value)
{
	value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9ull;
	value = (value ^ value >> 27) * 0x94d049bb133111ebull;
	return value ^ value >> 31;
}

uint64_t bench_random(struct bench *bench)
{
	return run_mix(bench->random += 0x9e3779b97f4a7c15ull);
}

uint8_t *bench_map(uint64_t bytes)
{
	uint8_t *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED) {
		say_error("no memory: %s are needed; free some, or give --quick", say_size(bytes));
		return NULL;
	}
	(void)madvise(memory, bytes, MADV_HUGEPAGE);
	for (uint64_t at = 0; at < bytes; at += 4096)
		*(volatile uint8_t *)(memory + at) = 1;
	return memory;
}

void bench_unmap(uint8_t *memory, uint64_t bytes)
{
	if (memory)
		munmap(memory, bytes);
}

void bench_fill_random(struct bench *bench, uint8_t *memory, uint64_t bytes)
{
	for (uint64_t at = 0; at + 8 <= bytes; at += 8) {
		uint64_t value = bench_random(bench);

		memcpy(memory + at, &value, 8);
	}
}

void bench_key(uint64_t number, cairn_key *ret_key)
{
	for (uint64_t i = 0; i < 4; i++) {
		uint64_t word = run_mix((number + 1) * 0x9e3779b97f4a7c15ull + i * 0xd1b54a32d192ed03ull);

		memcpy(ret_key->bytes + 8 * i, &word, 8);
	}
}

/* ---- stores ------------------------------------------------------------------------------------------------------ */

char *bench_path(const struct bench *bench, const char *name)
{
	char *path;

	if (asprintf(&path, "%s/%s", bench->dir, name) < 0)
		abort();
	return path;
}

void bench_desc(struct cairn_space_desc *ret_desc)
{
	static const cairn_digest weights = {.bytes = {1}};

	*ret_desc = (struct cairn_space_desc){
		.size = sizeof *ret_desc, .model = "bench", .weights = &weights, .kv_dtype = "f16", .block_tokens = 16};
}

int bench_store(struct bench *bench, const char *name, const struct bench_plan *plan, cairn **ret_store,
                cairn_space **ret_space)
{
	struct cairn_space_desc desc;
	struct cairn_flash flash = {.budget_bytes = plan->flash_bytes};
	struct cairn_options options = {.size = sizeof options,
	                                .memory_bytes = plan->memory_bytes,
	                                .catalog_bytes = plan->catalog_bytes,
	                                .workers = PUMP_SLOTS,
	                                .free_floor_bytes = 1};
	char *path = bench_path(bench, name);

	bench_desc(&desc);
	if (plan->no_flash)
		options.flags = CAIRN_OPEN_NO_FLASH;
	if (plan->flash_bytes) {
		options.flags = CAIRN_OPEN_CREATE;
		options.flash = &flash;
		options.nflash = 1;
	}
	int error = cairn_open(path, &options, ret_store);
	free(path);
	if (error) {
		*ret_store = NULL;
		return say_error("%s", cairn_error_text());
	}
	if (cairn_describe(*ret_store, &desc, ret_space)) {
		error = say_error("%s", cairn_error_text());
		cairn_close(*ret_store);
		*ret_store = NULL;
	}
	return error;
}

static int run_remove(const char *path, const struct stat *stat, int type, struct FTW *place)
{
	(void)stat, (void)type;
	if (place->level > 0)
		(void)remove(path);
	return 0;
}

void bench_clear(const char *dir)
{
	(void)nftw(dir, run_remove, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}
