/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests of plan/replay.c: small cases by hand, LRU against a second one written another way, and on the recorded traces
 * (CAIRN_TRACES; skipped without) the figures of docs/POLICY.md. One thread.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cairn/cairn.h"
#include "plan/replay.h"

static struct trace *recorded(const char *name, const char *starts)
{
	char path[1024], times[1024];
	const char *directory = getenv("CAIRN_TRACES");
	struct trace *trace = NULL;
	if (!directory || !*directory)
		skip();
	snprintf(path, sizeof(path), "%s/%s", directory, name);
	snprintf(times, sizeof(times), "%s/%s", directory, starts ? starts : "");
	if (trace_read(path, starts ? times : NULL, &trace))
		fail_msg("%s", cairn_error_text());
	return trace;
}

static struct trace *conversation(void) { return recorded("mooncake_fast25_conversation_trace.jsonl.gz", NULL); }
static struct trace *synthetic(void) { return recorded("mooncake_fast25_synthetic_trace.jsonl.gz", NULL); }

static double percent(const struct trace *trace, uint32_t policy, uint32_t blocks, uint32_t hint, uint64_t seed)
{
	struct replay_options options = {.policy = policy, .blocks = blocks, .hint_percent = hint, .seed = seed};
	struct replay_result result;
	assert_int_equal(replay_run(trace, &options, &result), 0);
	print_message("  policy %u, %u blocks, hint %u %%: %.2f %%\n", policy, blocks, hint, result.hit_percent);
	return result.hit_percent;
}

static uint64_t hits(const struct trace *trace, uint32_t policy, uint32_t blocks)
{
	struct replay_options options = {.policy = policy, .blocks = blocks};
	struct replay_result result;
	assert_int_equal(replay_run(trace, &options, &result), 0);
	return result.hit_tokens;
}

/* ---- by hand ----------------------------------------------------------------------------------------------------- */

static uint32_t small_refs[] = {0, 1, 2, /**/ 3, 4, /**/ 0, 1, 2, /**/ 3, 4};
static struct trace_request small_requests[] = {
	{.first = 0, .nblocks = 3, .tokens = 1536},
	{.time_us = 10000000, .first = 3, .nblocks = 2, .tokens = 1024},
	{.time_us = 20000000, .first = 5, .nblocks = 3, .tokens = 1536},
	{.time_us = 30000000, .first = 8, .nblocks = 2, .tokens = 1000, .partial = 1},
};
static const struct trace small = {.requests = small_requests, .refs = small_refs, .nrequests = 4, .nrefs = 10,
                                   .nblocks = 5, .tokens = 5096};

static void test_replay__tail_goes_first_when_memory_is_short(void **state)
{
	(void)state;
	/* Room for four: the second request takes block 2, the first one's tail; the third finds 0 and 1 and takes 4. */
	assert_int_equal(hits(&small, REPLAY_LRU, 4), 1024 + 512);
	/* Room for three: 2 and 1 go, then 4 and 3; only block 0 is found. */
	assert_int_equal(hits(&small, REPLAY_LRU, 3), 512);
	assert_int_equal(hits(&small, REPLAY_LRU, 5), 1536 + 1000);
	assert_int_equal(hits(&small, REPLAY_LRU, 1), 0);
}

static void test_replay__hints_when_always_right(void **state)
{
	static const uint8_t want[] = {0, 0, 0, 0, 0, 1, 1, 1, 1, 1};
	uint8_t last[10];
	struct replay_options options = {.policy = REPLAY_LRU, .blocks = 4, .hint_percent = 100};
	struct replay_result result;
	(void)state;
	assert_int_equal(replay_hints(&small, 100, 1, last), 0);
	assert_memory_equal(last, want, sizeof(want));
	/* The third request's blocks will not come again: 2 goes, and not 4. */
	assert_int_equal(replay_run(&small, &options, &result), 0);
	assert_int_equal(result.hit_tokens, 1024 + 1000);
	options.blocks = 5;
	assert_int_equal(replay_run(&small, &options, &result), 0);
	assert_int_equal(result.hit_tokens, 1536 + 1000);
}

static void test_replay__hints_are_wrong_for_whole_requests(void **state)
{
	enum { N = 2000, EACH = 5 };
	static uint32_t refs[N * EACH];
	static struct trace_request requests[N];
	static uint8_t last[N * EACH];
	struct trace trace = {.requests = requests, .refs = refs, .nrequests = N, .nrefs = N * EACH, .nblocks = N * EACH};
	int wrong = 0;
	(void)state;
	for (uint32_t i = 0; i < N * EACH; i++)
		refs[i] = i; /* nothing comes again */
	for (uint32_t i = 0; i < N; i++)
		requests[i] = (struct trace_request){.first = i * EACH, .nblocks = EACH, .tokens = 512 * EACH};
	assert_int_equal(replay_hints(&trace, 75, 3, last), 0);
	for (uint32_t i = 0; i < N; i++) {
		wrong += !last[i * EACH];
		for (uint32_t b = 1; b < EACH; b++)
			assert_int_equal(last[i * EACH + b], last[i * EACH]);
	}
	assert_in_range(wrong, N / 4 - 80, N / 4 + 80);
}

static void test_replay__errors(void **state)
{
	struct replay_options options = {.blocks = 0};
	struct replay_result result;
	(void)state;
	assert_int_equal(replay_run(&small, &options, &result), CAIRN_E_INVAL);
	options = (struct replay_options){.blocks = 1, .hint_percent = 101};
	assert_int_equal(replay_run(&small, &options, &result), CAIRN_E_INVAL);
	options = (struct replay_options){.blocks = 1, .policy = 3};
	assert_int_equal(replay_run(&small, &options, &result), CAIRN_E_INVAL);
}

/* ---- a second LRU ------------------------------------------------------------------------------------------------ */

/* No lists: every use is queued, and what was used again since is passed over when its turn comes. */
static uint64_t second_lru(const struct trace *trace, uint32_t room)
{
	uint32_t *queue = malloc((trace->nrefs + 1) * sizeof(*queue));
	uint64_t *turn = calloc(trace->nblocks, sizeof(*turn)); /* place in the queue of the last use, + 1; 0: not here */
	uint64_t from = 0, to = 0, tokens = 0;
	uint32_t here = 0;
	for (size_t r = 0; r < trace->nrequests; r++) {
		const struct trace_request *request = &trace->requests[r];
		const uint32_t *refs = trace->refs + request->first;
		uint64_t run = 0;
		while (run < request->nblocks && turn[refs[run]])
			run++;
		tokens += run * 512 < request->tokens ? run * 512 : request->tokens;
		for (uint32_t i = request->nblocks; i-- > 0;) {
			here += !turn[refs[i]];
			queue[to++] = refs[i];
			turn[refs[i]] = to;
		}
		for (; here > room; from++)
			if (turn[queue[from]] == from + 1) {
				turn[queue[from]] = 0;
				here--;
			}
	}
	free(queue);
	free(turn);
	return tokens;
}

static void test_replay__lru_equals_a_second_one(void **state)
{
	static const uint32_t sizes[] = {100, 1000, 2500, 5960, 10000, 27800};
	struct trace *trace = conversation();
	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint64_t want = second_lru(trace, sizes[i]);
		assert_true(want > 0);
		assert_int_equal(hits(trace, REPLAY_LRU, sizes[i]), want);
		assert_int_equal(hits(trace, REPLAY_INDEX_ONE, sizes[i]), want);
	}
	trace_free(trace);
}

/* ---- figures ----------------------------------------------------------------------------------------------------- */

static void test_replay__figures_of_the_conversation(void **state)
{
	struct trace *trace = conversation();
	(void)state;
	assert_int_equal(trace->nrequests, 12031);
	assert_true(percent(trace, REPLAY_LRU, UINT32_MAX, 0, 0) > 37.3);
	double lru = percent(trace, REPLAY_LRU, 5960, 0, 0);
	assert_true(lru > 14.05 && lru < 14.15);
	assert_true(percent(trace, REPLAY_INDEX, 2500, 0, 0) >= 12.3);
	assert_true(percent(trace, REPLAY_INDEX, 5960, 0, 0) >= 18.5);
	assert_true(percent(trace, REPLAY_INDEX, 10000, 0, 0) >= 23.4);
	assert_true(percent(trace, REPLAY_INDEX, 27800, 0, 0) >= 33.0);
	trace_free(trace);
}

/* Which requests are answered wrongly is a draw; one draw moves the figure by up to 0.4. */
static void test_replay__figures_of_the_conversation_with_hints(void **state)
{
	struct trace *trace = conversation();
	double lru = 0, index = 0;
	(void)state;
	for (uint64_t seed = 1; seed <= 4; seed++) {
		lru += percent(trace, REPLAY_LRU, 5960, 90, seed) / 4;
		index += percent(trace, REPLAY_INDEX, 5960, 90, seed) / 4;
	}
	assert_true(lru >= 28.2);
	assert_true(index >= 29.0);
	assert_true(percent(trace, REPLAY_LRU, 5960, 75, 1) >= 23.0);
	assert_true(percent(trace, REPLAY_LRU, 5960, 100, 1) >= 34.2);
	trace_free(trace);
}

static void test_replay__figures_of_the_synthetic_one(void **state)
{
	struct trace *trace = synthetic();
	(void)state;
	double lru = percent(trace, REPLAY_LRU, 5960, 0, 0);
	assert_true(lru > 31.6 && lru < 31.7);
	assert_true(percent(trace, REPLAY_INDEX, 5960, 0, 0) >= 33.0);
	trace_free(trace);
}

static void test_replay__figures_of_the_agents(void **state)
{
	const char *name = "kvct_claude_code_710_sessions.runs.jsonl.gz";
	struct trace *trace = recorded(name, "agents_8h_starts.csv");
	(void)state;
	assert_int_equal(trace->nrequests, 49334);
	double lru = percent(trace, REPLAY_LRU, 10000, 0, 0);
	assert_true(lru > 82.2 && lru < 82.3);
	assert_true(percent(trace, REPLAY_INDEX, 2000, 0, 0) >= 36.0);
	assert_true(percent(trace, REPLAY_INDEX, 10000, 0, 0) >= 81.85); /* 81.9 */
	trace_free(trace);
	trace = recorded(name, "agents_1h_starts.csv");
	assert_true(percent(trace, REPLAY_INDEX, 10000, 0, 0) >= 55.0);
	assert_true(percent(trace, REPLAY_INDEX, 25000, 0, 0) >= 78.0);
	trace_free(trace);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_replay__tail_goes_first_when_memory_is_short),
		cmocka_unit_test(test_replay__hints_when_always_right),
		cmocka_unit_test(test_replay__hints_are_wrong_for_whole_requests),
		cmocka_unit_test(test_replay__errors),
		cmocka_unit_test(test_replay__lru_equals_a_second_one),
		cmocka_unit_test(test_replay__figures_of_the_conversation),
		cmocka_unit_test(test_replay__figures_of_the_conversation_with_hints),
		cmocka_unit_test(test_replay__figures_of_the_synthetic_one),
		cmocka_unit_test(test_replay__figures_of_the_agents),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
