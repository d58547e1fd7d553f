/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cairn-sim: the store on simulated media and time, beside a model, seed by seed.
 *
 *   cairn-sim --seeds A-B [--steps N] [--verbose] [--trace]
 *   cairn-sim --every-io | --every-crash
 *
 * Ends with 1 at the first seed that fails, and says how to replay it. --verbose tells each operation (twice: each
 * event too), --trace each I/O.
 */
#include <malloc.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "sim/run.h"
#include "store/store.h"

enum { STEPS = 120, HANG_S = 20, CALL_NS_MAX = 300 };

static struct run *running;
static struct random entropy;

/* What the store draws from the system comes from the seed too. */
ssize_t getrandom(void *bytes, size_t length, unsigned flags)
{
	uint8_t *at = bytes;
	(void)flags;
	for (size_t i = 0; i < length; i++)
		at[i] = (uint8_t)random_next(&entropy);
	return (ssize_t)length;
}

/* ---- a run ----------------------------------------------------------------------------------------------------- */

static void say_replay(const struct run *run)
{
	fprintf(stderr, "replay: cairn-sim --seeds %llu-%llu --verbose\n", (unsigned long long)run->seed,
	        (unsigned long long)run->seed);
}

_Noreturn void run_fail(struct run *run, const char *format, ...)
{
	va_list args;
	char what[1024];
	va_start(args, format);
	(void)vsnprintf(what, sizeof(what), format, args);
	va_end(args);
	fprintf(stderr, "cairn-sim: seed %llu failed at step %u: %s\n", (unsigned long long)run->seed, run->step, what);
	say_replay(run);
	fflush(NULL);
	_exit(1);
}

void run_note(struct run *run, const char *format, ...)
{
	va_list args;
	if (!run->verbose)
		return;
	fprintf(stderr, "%4u %12.6f  ", run->step, (double)run_now(run) / 1e9);
	va_start(args, format);
	(void)vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
}

static void on_signal(int number)
{
	const char *what = number == SIGALRM ? "it hangs" : "it crashed";
	if (running) {
		fprintf(stderr, "cairn-sim: seed %llu failed at step %u: %s (signal %d)\n", (unsigned long long)running->seed,
		        running->step, what, number);
		say_replay(running);
	}
	signal(SIGABRT, SIG_DFL);
	abort();
}

/* Reads that failed, or hung over a leap of time, have a device stepped over until a read of it was good again: that
 * may be long after the trouble. */
static int run_shut(const struct run *run)
{
	struct cairn_stat stat = {.size = sizeof(stat)};
	if (run->dead || !run->store || cairn_stat(run->store, &stat))
		return 0;
	for (uint32_t i = 0; i < stat.ndevices; i++)
		if (stat.device[i].reads_shut)
			return 1;
	return 0;
}

void run_begin(struct run *run)
{
	run->op++;
	run->op_ns = run_now(run);
	run->op_wall_s = run_wall(run);
	run->before = *sim_stats(run->world);
	run->shut = run_shut(run);
	limits_begin(run);
}

void run_end(struct run *run, const char *what)
{
	const struct sim_stats *now = sim_stats(run->world), *was = &run->before;
	if (now->crashes + now->kills != run->deaths) {
		run->deaths = now->crashes + now->kills;
		run->dead = 1;
	}
	if (run->dead || now->read_errors + now->write_errors + now->flush_errors + now->failed + now->full + now->slow !=
	                     was->read_errors + was->write_errors + was->flush_errors + was->failed + was->full + was->slow)
		run->trouble_ns = run_now(run) + 10000000000ull;
	run->shut |= run_shut(run);
	run->unsynced |= run_troubled(run);
	if (run_now(run) - run->op_ns > CALL_NS_MAX * 1000000000ull)
		run_fail(run, "%s took %llu s", what, (unsigned long long)((run_now(run) - run->op_ns) / 1000000000));
	model_events(run);
	limits_end(run);
	run->acting = -1;
	sessions_tick(run);
}

int run_troubled(const struct run *run)
{
	return run->dead || run->gone || run->shut || run_now(run) < run->trouble_ns || run->op_ns < run->trouble_ns;
}

int run_roomy(const struct run *run)
{
	uint64_t least = UINT64_MAX;
	for (uint32_t i = 0; i < run->config.ndevices; i++)
		least = run->config.budget_bytes[i] < least ? run->config.budget_bytes[i] : least;
	return run->put_bytes * 3 + (9ull << 20) < least && !run->config.full && !run->config.faults &&
	       run->config.catalog_bytes >= 1 << 20 && run->nblocks < 4000 && !run->shrunk &&
	       !run->config.limited;
}

static void step(struct run *run)
{
	static const struct {
		uint32_t weight;
		void (*op)(struct run *run);
	} ops[] = {
		{300, op_put},        {250, op_get},    {60, op_lease}, {90, op_match},  {25, op_hint},   {35, op_drop},
		{5, op_drop_wide},    {25, op_sync},    {50, op_save},  {45, op_resume}, {15, op_forget}, {15, op_pin},
		{8, op_session_list}, {20, op_explain}, {60, op_life},  {20, op_space},  {20, op_time},   {10, op_heal},
		{25, op_limits},
	};
	uint32_t all = 0, at;
	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
		all += ops[i].weight;
	at = pick(run, all);
	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		if (at < ops[i].weight) {
			ops[i].op(run);
			break;
		}
		at -= ops[i].weight;
	}
	if (!run->dead && percent(run, 10)) {
		entry_verify(run->store);
		life_limits(run);
	}
	/* A crash in the middle of one of the next operations. */
	if (run->config.crashes && percent(run, 3))
		sim_crash_at(run->world, 1 + pick(run, 80), percent(run, 50));
}

struct run *run_start(uint64_t seed, int verbose, int trace, struct tally *tally)
{
	static struct run run;
	static uint8_t *arena;
	static struct block blocks[BLOCKS];
	if (!arena)
		arena = malloc((size_t)BATCH * ARENA_PART);
	memset(&run, 0, sizeof(run));
	running = &run;
	run.seed = seed;
	run.verbose = verbose;
	run.arena = arena;
	run.blocks = blocks;
	run.tally = tally;
	random_init(&run.random, seed);
	random_init(&entropy, seed ^ 0x5eed);
	run.world = sim_new(seed);
	run.maker = sim_maker(run.world);
	sim_dead_fails(run.world, 1);
	run.free_bytes = 1ull << 40;
	if (trace)
		sim_trace(run.world, stderr);
	alarm(HANG_S);
	life_start(&run);
	return &run;
}

void run_finish(struct run *run)
{
	run->armed = 0;
	sim_crash_at(run->world, 0, 0);
	sim_fail_at(run->world, 0, 0);
	while (run->dead) {
		life_end(run, 1);
		life_open(run, 0);
	}
	sim_crash_at(run->world, 0, 0);
	life_faults(run, 0);
	op_get_all(run);
	for (uint32_t s = 0; s < SESSIONS; s++)
		session_resume_check(run, s);
	entry_verify(run->store);
	life_end(run, 0);
	life_done(run);
	sim_free(run->world);
	running = NULL;
}

static void run_seed(uint64_t seed, uint32_t steps, int verbose, int trace, struct tally *tally)
{
	struct run *run = run_start(seed, verbose, trace, tally);
	life_open(run, 0);
	for (run->step = 1; run->step <= steps; run->step++) {
		if (run->dead) {
			life_end(run, 1);
			op_damage(run);
			life_open(run, 0);
			continue;
		}
		step(run);
		tally->steps++;
	}
	run_finish(run);
}

/* ---- the program ----------------------------------------------------------------------------------------------- */

static int usage(void)
{
	fprintf(stderr, "usage: cairn-sim --seeds A-B [--steps N] [--verbose] [--trace] | --every-io | --every-crash\n");
	return 2;
}

static int seeds(const char *range, uint32_t steps, int verbose, int trace)
{
	char *end;
	uint64_t first = strtoull(range, &end, 10), last = *end == '-' ? strtoull(end + 1, &end, 10) : first;
	struct tally tally = {0};
	if (*end || last < first)
		return usage();
	for (uint64_t seed = first; seed <= last; seed++)
		run_seed(seed, steps, verbose, trace, &tally);
	printf("cairn-sim: seeds %llu to %llu pass: %llu steps, %llu parts put (%llu durable), %llu got (%llu hits), "
	       "%llu matches, %llu leases, %llu drops, %llu saves, %llu resumes, %llu opens, %llu crashes, %llu evictions, "
	       "%llu damages, %llu devices away\n",
	       (unsigned long long)first, (unsigned long long)last, (unsigned long long)tally.steps,
	       (unsigned long long)tally.puts, (unsigned long long)tally.durable, (unsigned long long)tally.gets,
	       (unsigned long long)tally.hits, (unsigned long long)tally.matches, (unsigned long long)tally.leases,
	       (unsigned long long)tally.drops, (unsigned long long)tally.saves, (unsigned long long)tally.resumes,
	       (unsigned long long)tally.opens, (unsigned long long)tally.crashes, (unsigned long long)tally.evicted,
	       (unsigned long long)tally.damages, (unsigned long long)tally.aways);
	return 0;
}

int main(int argc, char **argv)
{
	const char *range = NULL;
	uint32_t steps = STEPS;
	int verbose = 0, trace = 0, io = 0, crash = 0;
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--seeds") && i + 1 < argc)
			range = argv[++i];
		else if (!strcmp(argv[i], "--steps") && i + 1 < argc)
			steps = (uint32_t)strtoul(argv[++i], NULL, 10);
		else if (!strcmp(argv[i], "--verbose"))
			verbose++;
		else if (!strcmp(argv[i], "--trace"))
			trace = 1;
		else if (!strcmp(argv[i], "--every-io"))
			io = 1;
		else if (!strcmp(argv[i], "--every-crash"))
			crash = 1;
		else
			return usage();
	}
	/* The simulator takes and gives whole writes; asking the system for each costs more than all the rest. */
	(void)mallopt(M_MMAP_THRESHOLD, 2 << 20);
	(void)mallopt(M_TRIM_THRESHOLD, 64 << 20);
	signal(SIGALRM, on_signal);
	signal(SIGABRT, on_signal);
	if (io || crash)
		return io ? every_io(verbose) : every_crash(verbose);
	return range ? seeds(range, steps, verbose, trace) : usage();
}
