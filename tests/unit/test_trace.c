/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of plan/trace.c: both formats, gzip, and text that is not a trace. One thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <zlib.h>

#include "base/random.h"
#include "cairn/cairn.h"
#include "plan/trace.h"

static char path[64], starts[64];

static void text_write(const char *to, const char *text)
{
	FILE *file = fopen(to, "w");
	assert_non_null(file);
	assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
	assert_int_equal(fclose(file), 0);
}

static int setup(void **state)
{
	(void)state;
	snprintf(path, sizeof(path), "/tmp/cairn-test-trace-XXXXXX");
	snprintf(starts, sizeof(starts), "/tmp/cairn-test-trace-XXXXXX");
	int a = mkstemp(path), b = mkstemp(starts);
	if (a < 0 || b < 0)
		return -1;
	close(a);
	close(b);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	unlink(path);
	unlink(starts);
	return 0;
}

static const char requests[] =
	"{\"timestamp\": 0, \"input_length\": 1100, \"output_length\": 5, \"hash_ids\": [0, 7, 8]}\n"
	"{\"timestamp\": 2500, \"input_length\": 1024, \"output_length\": 5, \"hash_ids\": [0, 9]}\n"
	"{\"timestamp\": 1000, \"input_length\": 600, \"more\": {\"a\": [1, \"x\\\"]\", null]}, \"hash_ids\": [0, 7]}\n";

static void requests_are(const struct trace *trace)
{
	static const uint32_t refs[] = {0, 1, 2, 0, 3, 0, 1};
	assert_int_equal(trace->nrequests, 3);
	assert_int_equal(trace->nrefs, 7);
	assert_int_equal(trace->nblocks, 4);
	assert_int_equal(trace->tokens, 2724);
	assert_memory_equal(trace->refs, refs, sizeof(refs));
	assert_int_equal(trace->requests[1].time_us, 1000000); /* in order of time */
	assert_int_equal(trace->requests[1].first, 5);
	assert_int_equal(trace->requests[2].time_us, 2500000);
	assert_int_equal(trace->requests[0].partial, 1);
	assert_int_equal(trace->requests[2].partial, 0);
	assert_int_equal(trace_tokens(&trace->requests[0], 2), 1024);
	assert_int_equal(trace_tokens(&trace->requests[0], 3), 1100); /* the last block is not full */
}

static void test_trace__requests_when_read(void **state)
{
	struct trace *trace;
	(void)state;
	text_write(path, requests);
	assert_int_equal(trace_read(path, NULL, &trace), 0);
	requests_are(trace);
	trace_free(trace);
}

static void test_trace__requests_when_packed(void **state)
{
	struct trace *trace;
	(void)state;
	gzFile file = gzopen(path, "wb");
	assert_int_equal(gzwrite(file, requests, sizeof(requests) - 1), sizeof(requests) - 1);
	gzclose_w(file);
	assert_int_equal(trace_read(path, NULL, &trace), 0);
	requests_are(trace);
	trace_free(trace);
}

static const char sessions[] =
	"{\"id\":\"a\",\"block_size\":64,\"requests\":[{\"t\":0.5,\"type\":\"n\",\"in\":1030,\"hash_runs\":[[1,16]]},"
	"{\"type\":\"subagent\",\"requests\":[{\"t\":1,\"in\":600,\"hash_runs\":[[1,4],[50,5]]}],\"t\":4},"
	"{\"t\":2,\"in\":1600,\"hash_runs\":[[1,12],[40,13]]}]}\n"
	"{\"id\":\"b\",\"requests\":[{\"t\":0,\"in\":530,\"hash_runs\":[[1,8]]}]}\n";

static void test_trace__sessions_when_read(void **state)
{
	/* b's comes first; then a: 1-16; 1-12 and 40-51 (block 1 shared, 9-12 40-43 is new); the sub-agent: 1-4 50-53. */
	static const uint64_t times[] = {1000000, 10500000, 12000000, 15000000};
	static const uint32_t blocks[][3] = {{5}, {0, 1}, {0, 3, 4}, {2}}, counts[] = {1, 2, 3, 1};
	struct trace *trace;
	(void)state;
	text_write(path, sessions);
	text_write(starts, "session,id,start_s\n0,a,10.0\n1,b,1\n");
	assert_int_equal(trace_read(path, starts, &trace), 0);
	assert_int_equal(trace->nrequests, 4);
	assert_int_equal(trace->nblocks, 6); /* ids are each session's own: b's 1-8 is not a's */
	for (size_t i = 0; i < 4; i++) {
		const struct trace_request *request = &trace->requests[i];
		assert_int_equal(request->time_us, times[i]);
		assert_int_equal(request->nblocks, counts[i]);
		assert_int_equal(request->partial, 0);
		assert_memory_equal(trace->refs + request->first, blocks[i], counts[i] * sizeof(uint32_t));
	}
	trace_free(trace);
}

static void test_trace__errors_when_it_is_none(void **state)
{
	static const char *const texts[] = {
		"", "x", "{", "[]", "{}", "{\"timestamp\": 1}", "{\"timestamp\": 1, \"input_length\": 2, \"hash_ids\": [1,",
		"{\"timestamp\": -1, \"input_length\": 2}", "{\"timestamp\": 1, \"input_length\": 1e99, \"hash_ids\": []}",
		"{\"timestamp\": nan, \"input_length\": 2, \"hash_ids\": []}", "{\"requests\":[{\"hash_runs\":[[1]]}]}",
		"{\"requests\":[{\"hash_runs\":[[1,1e30]]}]}", "{\"requests\": 5}", "{\"a\": [[[[[[[[[[[[[[[[[[[[[[1",
		"{\"timestamp\": 1, \"input_length\": 2, \"hash_ids\": [1]} {", "{\"timestamp\" 1}", "{\"a\\",
	};
	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct trace *trace = NULL;
		text_write(path, texts[i]);
		int error = trace_read(path, NULL, &trace);
		if (error != CAIRN_E_INVAL || trace)
			fail_msg("text %zu: %d %s", i, error, cairn_error_text());
	}
	struct trace *trace = NULL;
	assert_int_equal(trace_read("/nowhere/at/all", NULL, &trace), CAIRN_E_NOENT);
	text_write(path, sessions);
	text_write(starts, "session,id,start_s\n0,a,10.0\n"); /* one session has no start */
	assert_int_equal(trace_read(path, starts, &trace), CAIRN_E_INVAL);
	text_write(starts, "session,id,start_s\n0,a,10.0\n7,b,1\n");
	assert_int_equal(trace_read(path, starts, &trace), CAIRN_E_INVAL);
}

static void test_trace__any_bytes_are_survived(void **state)
{
	struct random random;
	char text[sizeof(sessions) + sizeof(requests)];
	int good = 0, bad = 0;
	(void)state;
	random_init(&random, 5);
	for (int i = 0; i < 3000; i++) {
		struct trace *trace = NULL;
		snprintf(text, sizeof(text), "%s", i % 2 ? sessions : requests);
		for (uint64_t n = 1 + random_below(&random, 3); n--;)
			text[random_below(&random, strlen(text))] = "{}[]\",:0123456789ets\n\\"[random_below(&random, 22)];
		text[random_below(&random, strlen(text)) + 1] = 0;
		text_write(path, text);
		if (trace_read(path, NULL, &trace)) {
			bad++;
			continue;
		}
		good++;
		for (size_t r = 0; r < trace->nrequests; r++)
			for (uint32_t b = 0; b < trace->requests[r].nblocks; b++)
				assert_true(trace->refs[trace->requests[r].first + b] < trace->nblocks);
		trace_free(trace);
	}
	if (good < 5 || bad < 1000)
		fail_msg("%d good, %d bad", good, bad);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_trace__requests_when_read, setup, teardown),
		cmocka_unit_test_setup_teardown(test_trace__requests_when_packed, setup, teardown),
		cmocka_unit_test_setup_teardown(test_trace__sessions_when_read, setup, teardown),
		cmocka_unit_test_setup_teardown(test_trace__errors_when_it_is_none, setup, teardown),
		cmocka_unit_test_setup_teardown(test_trace__any_bytes_are_survived, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
