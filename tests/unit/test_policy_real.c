/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The real store keeps what its policy says: recorded traces through match, get, put and hint, beside the pure replay
 * (bench/policy_real.h). Skipped without CAIRN_TRACES. One thread.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "bench/policy_real.h"
#include "cairn/cairn.h"

/* Returns the real store's percentage, which is within half a point of the pure policy's. */
static double same_as_pure(const char *name, const char *starts, uint32_t blocks, uint32_t hint, uint32_t read_every)
{
	char trace[1024], times[1024];
	const char *directory = getenv("CAIRN_TRACES");
	if (!directory || !*directory)
		skip();
	snprintf(trace, sizeof(trace), "%s/%s", directory, name);
	snprintf(times, sizeof(times), "%s/%s", directory, starts ? starts : "");
	struct policy_real_options options = {.trace = trace, .starts = starts ? times : NULL, .blocks = blocks,
	                                      .hint_percent = hint, .read_every = read_every, .seed = 1};
	struct policy_real_result result;
	int error = policy_real(&options, &result);
	if (error)
		fail_msg("%d %s", error, cairn_error_text());
	print_message("  %u blocks, hint %u %%: real %.2f, pure %.2f; %.1f s\n", blocks, hint, result.real_percent,
	              result.pure_percent, result.real_s);
	assert_true(result.evicted_blocks > 0);
	assert_true(result.read_blocks > 0);
	if (fabs(result.real_percent - result.pure_percent) > 0.5)
		fail_msg("the real store hits %.2f %%, the policy %.2f %%", result.real_percent, result.pure_percent);
	return result.real_percent;
}

static const char conversation[] = "mooncake_fast25_conversation_trace.jsonl.gz";

static void test_policy_real__conversation(void **state)
{
	(void)state;
	assert_true(same_as_pure(conversation, NULL, 5960, 0, 4) > 18.5);
}

static void test_policy_real__conversation_with_hints(void **state)
{
	(void)state;
	assert_true(same_as_pure(conversation, NULL, 5960, 90, 4) > 28.8);
}

static void test_policy_real__synthetic(void **state)
{
	(void)state;
	assert_true(same_as_pure("mooncake_fast25_synthetic_trace.jsonl.gz", NULL, 5960, 0, 4) > 32.6);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_policy_real__conversation),
		cmocka_unit_test(test_policy_real__conversation_with_hints),
		cmocka_unit_test(test_policy_real__synthetic),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
