/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Figures of a cairnd reached over TCP, as from another server: what comes and goes over loopback, beside the bench's
 * own send and receive between the same memories.
 * Threads: those of the limit. Memory: the daemon's pool, a source and a destination, each larger than the last-level
 * cache.
 * Invariant: source, pool and destination are walked from end to end before a byte is met again.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"
#include "cli/cli.h"

static const struct bench_figure remote_figures[] = {
	{"remote.get", "GB/s", "send and receive", "parts of 2 MiB over loopback TCP; the caller checks", 0, 0.9, 0, 0},
	{"remote.get.checked", "GB/s", "send and receive", "the same, checked as they come", 0, 0.7, 0, 0},
	{"remote.put", "GB/s", "send and receive", "parts of 2 MiB over loopback TCP, checked by both", 0, 0.7, 0, 0},
	{"remote.get.tls", "GB/s", "SSL_write and SSL_read", "the same over TLS 1.3, checked", 0, 0.9, 0, 0},
	{"remote.batch", "GB/s", "single gets", "gets of 8 parts a call, checked", 0, 1, 0, 0},
};

enum {
	REMOTE_STREAMS = 2,
	REMOTE_PUT = 2, /* places in the list above */
	REMOTE_TLS = 3,
	REMOTE_FIGURES = 4 /* that have the loop as their limit */
};
static const char *const remote_limits[2] = {"send and receive, 1 stream", "send and receive, 2 streams"};
static const char *const remote_tls_limits[2] = {"SSL_write, SSL_read, 1 stream", "SSL_write, SSL_read, 2 streams"};

struct remote_work {
	struct bench_daemon daemon;
	cairn *store, *secure;
	cairn_space *space, *secure_space;
	struct bench_loop *loops[REMOTE_STREAMS], *secure_loops[REMOTE_STREAMS];
	uint8_t *from, *to;
	uint64_t bytes, parts;
	double client_cpu_s[REMOTE_FIGURES], daemon_cpu_s[REMOTE_FIGURES], gb[REMOTE_FIGURES];
};

static int remote_start(struct bench *bench)
{
	struct remote_work *work = bench->work = calloc(1, sizeof *work);
	struct bench_plan plan = {.no_flash = 1};

	if (!work)
		return say_error("out of memory; free some and try again");
	work->bytes = bench_cold_bytes(bench, 4); /* the pool holds what is got, and what is put */
	work->parts = work->bytes / BENCH_PART_BYTES;
	work->from = bench_map(work->bytes);
	work->to = work->from ? bench_map(work->bytes) : NULL;
	if (!work->to)
		return CLI_ERROR;
	bench_fill_random(bench, work->from, work->bytes);
	for (uint32_t i = 0; i < REMOTE_STREAMS; i++)
		if (!(work->loops[i] = bench_loop_open(i + 1, 0)) || !(work->secure_loops[i] = bench_loop_open(i + 1, 1)))
			return CLI_ERROR;
	plan.memory_bytes = 2 * work->bytes + work->bytes / 8 + ((uint64_t)64 << 20);
	int error = bench_daemon_start(bench, "remote", &plan, &work->daemon);
	error = error ? error : bench_connect(work->daemon.remote, NULL, &work->store, &work->space);
	if (bench_wants(bench, "remote.get.tls") && !error)
		error = bench_connect(work->daemon.secure, work->daemon.token, &work->secure, &work->secure_space);
	if (error)
		return error;
	return bench_put_parts(work->store, work->space, work->from, 0, work->parts, BENCH_BATCH) > 0 ? 0 : CLI_ERROR;
}

/* The limit: with one stream and with two. 0, or CLI_ERROR after a message. */
static int remote_limit(struct remote_work *work, struct bench_loop *const *loops, double ret_limits[2])
{
	for (uint32_t i = 0; i < REMOTE_STREAMS; i++) {
		ret_limits[i] = bench_loop_run(loops[i], work->from, work->to, work->bytes);
		if (!(ret_limits[i] > 0))
			return CLI_ERROR;
	}
	return 0;
}

/* One figure's value; 0 after a message. */
static double remote_value(struct remote_work *work, uint32_t figure, uint32_t round)
{
	double client = bench_cpu(), daemon = bench_daemon_cpu(&work->daemon), value;

	if (figure == REMOTE_PUT)
		value = bench_put_parts(work->store, work->space, work->from, work->parts, work->parts, BENCH_BATCH);
	else if (figure == REMOTE_TLS)
		value = bench_get_parts(work->secure, work->secure_space, work->to, 0, work->parts, BENCH_BATCH, 0);
	else
		value = bench_get_parts(work->store, work->space, work->to, 0, work->parts, BENCH_BATCH,
		                        figure ? 0 : BENCH_UNCHECKED);
	if (round) {
		work->client_cpu_s[figure] += bench_cpu() - client;
		work->daemon_cpu_s[figure] += bench_daemon_cpu(&work->daemon) - daemon;
		work->gb[figure] += (double)work->bytes / 1e9;
	}
	return value;
}

static int remote_figure(struct bench *bench, struct remote_work *work, uint32_t figure, uint32_t round)
{
	struct bench_loop *const *loops = figure == REMOTE_TLS ? work->secure_loops : work->loops;
	double limits[2];

	if (round % 2 && remote_limit(work, loops, limits))
		return CLI_ERROR;
	memset(work->to, 0, work->bytes);
	double value = remote_value(work, figure, round);
	if (!(value > 0))
		return CLI_ERROR;
	if (figure != REMOTE_PUT && memcmp(work->from, work->to, work->bytes))
		return say_error("what was got is not what was put");
	if (!(round % 2) && remote_limit(work, loops, limits))
		return CLI_ERROR;
	bench_add_either(bench, round, remote_figures[figure].name, value, limits);
	return figure == REMOTE_PUT ? bench_forget_parts(work->store, work->space, work->parts, work->parts) : 0;
}

static int remote_batch(struct bench *bench, struct remote_work *work, uint32_t round)
{
	double rate[2] = {0};

	for (uint32_t i = 0; i < 2; i++) {
		int single = (int)((round + i) % 2);

		rate[single] = bench_get_parts(work->store, work->space, work->to, 0, work->parts, single ? 1 : BENCH_BATCH, 0);
		if (!(rate[single] > 0))
			return CLI_ERROR;
	}
	bench_add(bench, round, "remote.batch", rate[0], rate[1]);
	return 0;
}

static int remote_round(struct bench *bench, uint32_t round)
{
	int error = 0;

	for (uint32_t i = 0; i < REMOTE_FIGURES && !error; i++)
		if (bench_wants(bench, remote_figures[i].name))
			error = remote_figure(bench, bench->work, i, round);
	if (!error && bench_wants(bench, "remote.batch"))
		error = remote_batch(bench, bench->work, round);
	return error;
}

static int remote_finish(struct bench *bench)
{
	const struct remote_work *work = bench->work;
	struct bench_result *get = bench_find(bench, "remote.get");
	char text[24];

	for (uint32_t i = 0; i < REMOTE_FIGURES; i++) {
		const char *name = remote_figures[i].name;

		bench_choose(bench, name, i == REMOTE_TLS ? remote_tls_limits : remote_limits);
		bench_cpu_note(bench, name, work->client_cpu_s[i], work->daemon_cpu_s[i], work->gb[i]);
	}
	double iperf3 = get->wanted ? bench_iperf3(bench) : 0;
	if (iperf3 > 0)
		snprintf(get->note + strlen(get->note), sizeof get->note - strlen(get->note), "; iperf3 %s GB/s",
		         bench_number(iperf3, text, sizeof text));
	return 0;
}

static void remote_done(struct bench *bench)
{
	struct remote_work *work = bench->work;

	if (!work)
		return;
	if (work->store)
		cairn_close(work->store);
	if (work->secure)
		cairn_close(work->secure);
	bench_daemon_end(&work->daemon);
	for (uint32_t i = 0; i < REMOTE_STREAMS; i++)
		bench_loop_close(work->loops[i]), bench_loop_close(work->secure_loops[i]);
	bench_unmap(work->from, work->bytes);
	bench_unmap(work->to, work->bytes);
	free(work);
}

const struct bench_family bench_remote = {
	.name = "remote",
	.figures = remote_figures,
	.nfigures = sizeof remote_figures / sizeof remote_figures[0],
	.start = remote_start,
	.round = remote_round,
	.finish = remote_finish,
	.done = remote_done,
};
