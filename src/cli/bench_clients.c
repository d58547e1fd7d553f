/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Figures of many clients of one cairnd: eight processes that get parts at the same time, beside memcpy by a thread on
 * each processor, and how evenly they are served. Where processors are handed out unevenly, since other work goes on,
 * eight that only copy are served unevenly as well: they are measured beside, and so is how long each client waited for
 * a processor, which is not cairn's doing.
 * Threads: one; eight children at a time. Memory: the daemon's pool and the source; a destination in each child.
 * Invariant: all children begin together when all have touched all of the pool, and each one's bytes are counted in the
 * time in which it got them.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/bench.h"
#include "cli/cli.h"

enum {
	CLIENTS = 8
};

static const struct bench_figure clients_figures[] = {
	{"clients.8", "GB/s", "memcpy, all processors", "eight processes get parts of 2 MiB, checked, together", 0, 0.9, 0,
     0},
	{"clients.8.fair", "GB/s", "the fastest of them", "the slowest of the eight", 0, 0.8, 0, 0},
};

struct clients_shared {
	volatile int ready[CLIENTS], go, failed;
	volatile double until;
	volatile uint64_t parts[CLIENTS];
	volatile double seconds[CLIENTS], cpu_s[CLIENTS], held_up_s[CLIENTS];
};

struct clients_work {
	struct bench_rig rig;
	struct clients_shared *shared;
	struct bench_cpu_sum cpu;
	double copies_even[BENCH_ROUNDS + 1], served_even[BENCH_ROUNDS + 1];
};

/* Of the clients: four to a processor and more need time until each has had as much of it as the others. Copies beside
 * them need less: they are the same all the time. */
static double clients_seconds(const struct bench *bench)
{
	return bench->quick ? 2 : 8;
}

static double clients_copy_seconds(const struct bench *bench)
{
	return bench->quick ? 0.7 : 4;
}

static int clients_start(struct bench *bench)
{
	struct clients_work *work = bench->work = calloc(1, sizeof *work);

	if (!work)
		return say_error("out of memory; free some and try again");
	work->shared = mmap(NULL, sizeof *work->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (work->shared == MAP_FAILED) {
		work->shared = NULL;
		return say_error("no memory to be shared with processes: %s", strerror(errno));
	}
	return bench_rig_start(bench, "clients", 0, 1, &work->rig);
}

/* Seconds that this process was ready to run and had no processor; 0: the kernel does not say. */
static double clients_held_up(void)
{
	FILE *file = fopen("/proc/self/schedstat", "r");
	unsigned long long ran, waited;
	int known = file && fscanf(file, "%llu %llu", &ran, &waited) == 2;

	if (file)
		fclose(file);
	return known ? (double)waited / 1e9 : 0;
}

/* Touches all that is to be got, in the daemon's memory: a first use is not what is measured. 0, or 1. */
static int clients_touch(const struct clients_work *work, cairn *store, cairn_space *space)
{
	for (uint64_t part = 0; part < work->rig.parts; part++) {
		struct cairn_item item = {0};
		struct cairn_lease_info info;
		cairn_lease *lease;

		bench_key(part, &item.key);
		if (cairn_lease_take(store, space, &item, NULL, &lease))
			return 1;
		cairn_lease_get_info(lease, &info);
		for (uint64_t at = 0; at < info.bytes; at += 4096)
			(void)((const volatile uint8_t *)info.address)[at];
		cairn_lease_release(store, lease);
	}
	return 0;
}

/* A child: a client of its own, which walks the parts from its own place on until the time is over. `copies`: it copies
 * as much out of memory of its own instead. */
static int clients_child(const struct clients_work *work, uint32_t number, int copies)
{
	struct clients_shared *shared = work->shared;
	uint64_t room = work->rig.bytes / CLIENTS / (BENCH_BATCH * BENCH_PART_BYTES) * BENCH_BATCH, done = 0;
	uint64_t at = work->rig.parts / CLIENTS / BENCH_BATCH * BENCH_BATCH * number;
	cairn *store;
	cairn_space *space;

	room = room ? room : BENCH_BATCH;
	uint8_t *to = bench_map(room * BENCH_PART_BYTES);
	if (!to || bench_connect(work->rig.daemon.local, NULL, &store, &space) || clients_touch(work, store, space))
		return 1;
	shared->ready[number] = 1;
	while (!__atomic_load_n(&shared->go, __ATOMIC_ACQUIRE))
		usleep(200);
	double start = bench_now(), cpu = bench_cpu(), held_up = clients_held_up();
	while (bench_now() < shared->until) {
		uint8_t *here = to + done % room * BENCH_PART_BYTES;

		if (copies)
			(void)bench_memcpy(here, work->rig.from + at * BENCH_PART_BYTES, BENCH_BATCH * BENCH_PART_BYTES);
		else if (!(bench_get_parts(store, space, here, at, BENCH_BATCH, BENCH_BATCH, 0) > 0))
			return 1;
		if (memcmp(here, work->rig.from + at * BENCH_PART_BYTES, 64))
			return 1;
		at = at + BENCH_BATCH < work->rig.parts ? at + BENCH_BATCH : 0;
		done += BENCH_BATCH;
	}
	shared->cpu_s[number] = bench_cpu() - cpu;
	shared->seconds[number] = bench_now() - start;
	shared->held_up_s[number] = clients_held_up() - held_up;
	shared->parts[number] = done;
	cairn_close(store);
	return 0;
}

static int clients_wait(const pid_t *children, uint32_t count)
{
	int failed = 0, status;

	for (uint32_t i = 0; i < count; i++)
		failed |= waitpid(children[i], &status, 0) != children[i] || !WIFEXITED(status) || WEXITSTATUS(status);
	return failed;
}

/* Runs the eight. 0, or CLI_ERROR after a message. */
static int clients_run(struct bench *bench, struct clients_work *work, int copies)
{
	pid_t children[CLIENTS], parent = getpid();
	uint32_t started = 0;
	int ready = 0;

	memset(work->shared, 0, sizeof *work->shared);
	fflush(NULL);
	for (; started < CLIENTS; started++) {
		if ((children[started] = fork()) < 0)
			break;
		if (!children[started]) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			_exit(getppid() != parent || clients_child(work, started, copies));
		}
	}
	double until = bench_now() + 60;
	while (started == CLIENTS && !ready && !say_stopped && bench_now() < until) {
		ready = 1;
		for (uint32_t i = 0; i < CLIENTS; i++)
			ready &= work->shared->ready[i];
		usleep(500);
	}
	work->shared->until = ready ? bench_now() + (copies ? clients_copy_seconds(bench) : clients_seconds(bench)) : 0;
	__atomic_store_n(&work->shared->go, 1, __ATOMIC_RELEASE);
	if (!ready)
		for (uint32_t i = 0; i < started; i++)
			kill(children[i], SIGKILL);
	int failed = clients_wait(children, started);
	if (say_stopped)
		return CLI_ERROR;
	return failed || !ready ? say_error("a process that gets parts through a cairnd has failed") : 0;
}

/* The slowest of the eight / the fastest; running: in the time that they did not wait for a processor. */
static double clients_even(const struct clients_shared *shared, int running)
{
	double least = 0, most = 0;

	for (uint32_t i = 0; i < CLIENTS; i++) {
		double rate = (double)shared->parts[i] / (shared->seconds[i] - (running ? shared->held_up_s[i] : 0));

		least = !i || rate < least ? rate : least;
		most = rate > most ? rate : most;
	}
	return most > 0 ? least / most : 0;
}

static int clients_round(struct bench *bench, uint32_t round)
{
	struct clients_work *work = bench->work;
	const struct clients_shared *shared = work->shared;
	const struct bench_rig *rig = &work->rig;
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	double limit = 0, all = 0, least = 0, most = 0;
	uint32_t threads = processors > 0 ? (uint32_t)processors : 1;

	if (round % 2)
		limit = bench_memcpy_threads(rig->to, rig->from, rig->bytes, threads, clients_copy_seconds(bench));
	double daemon = bench_daemon_cpu(&rig->daemon);
	if (clients_run(bench, work, 0))
		return CLI_ERROR;
	work->served_even[round] = clients_even(shared, 1);
	daemon = bench_daemon_cpu(&rig->daemon) - daemon;
	for (uint32_t i = 0; i < CLIENTS; i++) {
		double gb = (double)(shared->parts[i] * BENCH_PART_BYTES) / 1e9, rate = gb / shared->seconds[i];

		all += rate;
		least = !i || rate < least ? rate : least;
		most = rate > most ? rate : most;
		work->cpu.gb += round ? gb : 0;
		work->cpu.client_s += round ? shared->cpu_s[i] : 0;
	}
	work->cpu.daemon_s += round ? daemon : 0;
	if (!(round % 2))
		limit = bench_memcpy_threads(rig->to, rig->from, rig->bytes, threads, clients_copy_seconds(bench));
	bench_add(bench, round, "clients.8", all, limit);
	bench_add(bench, round, "clients.8.fair", least, most);
	if (!bench_wants(bench, "clients.8.fair"))
		return 0;
	int error = clients_run(bench, work, 1);
	work->copies_even[round] = clients_even(shared, 0);
	return error;
}

static int clients_finish(struct bench *bench)
{
	struct clients_work *work = bench->work;
	struct bench_result *fair = bench_find(bench, "clients.8.fair");
	char copies[24], served[24];

	snprintf(fair->note, sizeof fair->note, "eight that only copy: %s; in the time that each had a processor: %s",
	         bench_number(bench_quantile(work->copies_even + 1, bench->rounds, 0.5), copies, sizeof copies),
	         bench_number(bench_quantile(work->served_even + 1, bench->rounds, 0.5), served, sizeof served));
	bench_cpu_note(bench, "clients.8", &work->cpu);
	return 0;
}

static void clients_done(struct bench *bench)
{
	struct clients_work *work = bench->work;

	if (!work)
		return;
	bench_rig_done(&work->rig);
	if (work->shared)
		munmap(work->shared, sizeof *work->shared);
	free(work);
}

const struct bench_family bench_clients = {
	.name = "clients",
	.figures = clients_figures,
	.nfigures = sizeof clients_figures / sizeof clients_figures[0],
	.start = clients_start,
	.round = clients_round,
	.finish = clients_finish,
	.done = clients_done,
};
