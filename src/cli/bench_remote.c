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
	struct bench_rig rig;
	cairn *secure;
	cairn_space *secure_space;
	struct bench_loop *loops[REMOTE_STREAMS], *secure_loops[REMOTE_STREAMS];
	struct bench_cpu_sum cpu[REMOTE_FIGURES];
};

static int remote_start(struct bench *bench)
{
	struct remote_work *work = bench->work = calloc(1, sizeof *work);

	if (!work)
		return say_error("out of memory; free some and try again");
	for (uint32_t i = 0; i < REMOTE_STREAMS; i++)
		if (!(work->loops[i] = bench_loop_open(i + 1, 0)) || !(work->secure_loops[i] = bench_loop_open(i + 1, 1)))
			return CLI_ERROR;
	int error = bench_rig_start(bench, "remote", 1, 2, &work->rig); /* what is got, and what is put */
	if (bench_wants(bench, "remote.get.tls") && !error)
		error = bench_connect(work->rig.daemon.secure, work->rig.daemon.token, &work->secure, &work->secure_space);
	return error;
}

/* The limit: with one stream and with two. 0, or CLI_ERROR after a message. */
static int remote_limit(struct remote_work *work, struct bench_loop *const *loops, double ret_limits[2])
{
	for (uint32_t i = 0; i < REMOTE_STREAMS; i++) {
		ret_limits[i] = bench_loop_run(loops[i], work->rig.from, work->rig.to, work->rig.bytes);
		if (!(ret_limits[i] > 0))
			return CLI_ERROR;
	}
	return 0;
}

/* One figure's value; 0 after a message. */
static double remote_value(struct remote_work *work, uint32_t figure, uint32_t round)
{
	const struct bench_rig *rig = &work->rig;
	double value;

	if (round)
		bench_cpu_begin(&work->cpu[figure], &rig->daemon);
	if (figure == REMOTE_PUT)
		value = bench_put_parts(rig->store, rig->space, rig->from, rig->parts, rig->parts, BENCH_BATCH);
	else if (figure == REMOTE_TLS)
		value = bench_get_parts(work->secure, work->secure_space, rig->to, 0, rig->parts, BENCH_BATCH, 0);
	else
		value = bench_get_parts(rig->store, rig->space, rig->to, 0, rig->parts, BENCH_BATCH,
		                        figure ? 0 : BENCH_UNCHECKED);
	if (round)
		bench_cpu_end(&work->cpu[figure], &rig->daemon, rig->bytes);
	return value;
}

static int remote_figure(struct bench *bench, struct remote_work *work, uint32_t figure, uint32_t round)
{
	const struct bench_rig *rig = &work->rig;
	struct bench_loop *const *loops = figure == REMOTE_TLS ? work->secure_loops : work->loops;
	double limits[2];

	if (round % 2 && remote_limit(work, loops, limits))
		return CLI_ERROR;
	memset(rig->to, 0, rig->bytes);
	double value = remote_value(work, figure, round);
	if (!(value > 0))
		return CLI_ERROR;
	if (figure != REMOTE_PUT && memcmp(rig->from, rig->to, rig->bytes))
		return say_error("what was got is not what was put");
	if (!(round % 2) && remote_limit(work, loops, limits))
		return CLI_ERROR;
	bench_add_either(bench, round, remote_figures[figure].name, value, limits);
	return figure == REMOTE_PUT ? bench_forget_parts(rig->store, rig->space, rig->parts, rig->parts) : 0;
}

static int remote_batch(struct bench *bench, struct remote_work *work, uint32_t round)
{
	const struct bench_rig *rig = &work->rig;
	double rate[2] = {0};

	for (uint32_t i = 0; i < 2; i++) {
		int single = (int)((round + i) % 2);

		rate[single] = bench_get_parts(rig->store, rig->space, rig->to, 0, rig->parts, single ? 1 : BENCH_BATCH, 0);
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
		bench_cpu_note(bench, name, &work->cpu[i]);
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
	if (work->secure)
		cairn_close(work->secure);
	for (uint32_t i = 0; i < REMOTE_STREAMS; i++)
		bench_loop_close(work->loops[i]), bench_loop_close(work->secure_loops[i]);
	bench_rig_done(&work->rig);
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
