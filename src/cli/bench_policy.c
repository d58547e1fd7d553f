/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policy family: recorded requests through a real store, whose memory has room for so many blocks, beside what the
 * pure policy keeps (bench/policy_real.h). Tokens hit, in percent.
 *
 * Threads: one. Memory: that of the store and the trace.
 * Invariant: a replay is on the trace's own clock, so one round tells for certain.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/policy_real.h"
#include "cli/bench.h"
#include "cli/cli.h"

#define POLICY_GAP_MOST 0.5 /* points between the real store and the pure policy */

static const struct bench_figure policy_figures[] = {
	{"policy.real.conv_5960", "%", "18.5 %", "chat, room for 5,960 blocks of 512 tokens: tokens hit", 18.5, 1, 0, 1},
	{"policy.real.conv_27800", "%", "33.0 %", "chat, room for 27,800 blocks", 33.0, 1, 0, 1},
	{"policy.real.conv_hints", "%", "29 %", "chat, 5,960 blocks, with hints that are right in 90 %", 29, 1, 0, 1},
	{"policy.real.agents_2000", "%", "36 %", "agents over 8 hours, room for 2,000 blocks", 36, 1, 0, 1},
	{"policy.real.agents_10000", "%", "81.9 %", "agents, room for 10,000 blocks", 81.9, 1, 0, 1},
	{"policy.real.gap", "points", "0.5 points", "most that these are from the pure policy", POLICY_GAP_MOST, 1, 1, 1},
};
enum { POLICY_TRACES = sizeof policy_figures / sizeof policy_figures[0] - 1 };

static const struct {
	const char *trace, *starts;
	uint32_t blocks, hint_percent;
} policy_loads[POLICY_TRACES] = {
	{"mooncake_fast25_conversation_trace.jsonl.gz", NULL, 5960, 0},
	{"mooncake_fast25_conversation_trace.jsonl.gz", NULL, 27800, 0},
	{"mooncake_fast25_conversation_trace.jsonl.gz", NULL, 5960, 90},
	{"kvct_claude_code_710_sessions.runs.jsonl.gz", "agents_8h_starts.csv", 2000, 0},
	{"kvct_claude_code_710_sessions.runs.jsonl.gz", "agents_8h_starts.csv", 10000, 0},
};

static const char *policy_directory(const struct bench *bench)
{
	return bench->traces ? bench->traces : getenv("CAIRN_TRACES");
}

int bench_has_traces(const struct bench *bench)
{
	return policy_directory(bench) != NULL;
}

static int policy_start(struct bench *bench)
{
	char *path;

	for (int i = 0; i < POLICY_TRACES; i++) {
		if (!bench_wants(bench, policy_figures[i].name))
			continue;
		if (asprintf(&path, "%s/%s", policy_directory(bench), policy_loads[i].trace) < 0)
			abort();
		int there = !access(path, R_OK);
		free(path);
		if (!there)
			return say_error("%s has no %s; give the directory of recorded requests with --traces",
			                 say_name(policy_directory(bench)), policy_loads[i].trace);
	}
	return 0;
}

static int policy_run(struct bench *bench, int load, struct policy_real_result *ret_result)
{
	char *trace, *starts = NULL;

	if (asprintf(&trace, "%s/%s", policy_directory(bench), policy_loads[load].trace) < 0 ||
	    (policy_loads[load].starts &&
	     asprintf(&starts, "%s/%s", policy_directory(bench), policy_loads[load].starts) < 0))
		abort();
	struct policy_real_options options = {.trace = trace,
	                                      .starts = starts,
	                                      .blocks = policy_loads[load].blocks,
	                                      .hint_percent = policy_loads[load].hint_percent,
	                                      .read_every = 16,
	                                      .seed = 1};
	int error = policy_real(&options, ret_result);
	if (error)
		say_error("%s: %s", policy_figures[load].name, cairn_error_text());
	free(trace);
	free(starts);
	return error ? CLI_ERROR : 0;
}

static double round_tenth(double percent)
{
	return round(percent * 10) / 10;
}

static int policy_round(struct bench *bench, uint32_t round)
{
	double gap = 0;
	int all = bench_wants(bench, "policy.real.gap");

	for (int i = 0; i < POLICY_TRACES && round == 1; i++) {
		struct policy_real_result result = {0};
		const char *name = policy_figures[i].name;

		if (!all && !bench_wants(bench, name))
			continue;
		if (say_stopped || policy_run(bench, i, &result))
			return CLI_ERROR;
		gap = fmax(gap, fabs(result.real_percent - result.pure_percent));
		bench_add(bench, round, name, round_tenth(result.real_percent), 0); /* as the goals are given */
		struct bench_result *figure = bench_find(bench, name);
		snprintf(figure->note, sizeof figure->note, "%.2f %%; the pure policy: %.2f %%", result.real_percent,
		         result.pure_percent);
	}
	if (all && round == 1)
		bench_add(bench, round, "policy.real.gap", gap, 0);
	return 0;
}

static void policy_done(struct bench *bench)
{
	(void)bench;
}

const struct bench_family bench_policy = {
	.name = "policy",
	.figures = policy_figures,
	.nfigures = sizeof policy_figures / sizeof policy_figures[0],
	.start = policy_start,
	.round = policy_round,
	.done = policy_done,
};
