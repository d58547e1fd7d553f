/* SPDX-License-Identifier: Apache-2.0 */
/* cairnd's log: lines stay lines whatever is in them, and no message floods. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "daemon/log.h"

static uint64_t now_ns;
static uint64_t mono(void *arg)
{
	(void)arg;
	return now_ns;
}
static uint64_t wall(void *arg)
{
	(void)arg;
	return 1700000000 + now_ns / 1000000000;
}
static const struct clock hand_clock = {mono, wall, NULL};
static int ends[2];
static char out[65536];

static int setup(void **state)
{
	(void)state;
	now_ns = 1;
	assert_int_equal(pipe(ends), 0);
	log_open(ends[1], &hand_clock);
	log_set(0, LOG_INFO);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	log_open(STDERR_FILENO, &clock_real);
	close(ends[0]);
	close(ends[1]);
	return 0;
}

/* All that was written since; the number of its lines. */
static int lines(void)
{
	int n = 0;
	assert_int_equal(write(ends[1], "", 1), 1); /* so that there is always something to read */
	ssize_t got = read(ends[0], out, sizeof out - 1);
	assert_true(got > 0);
	out[got] = 0;
	for (const char *at = out; (at = strchr(at, '\n')); at++)
		n++;
	return n;
}

static void test_log__is_logfmt_when_text(void **state)
{
	(void)state;
	LOG(LOG_WARNING, "a thing happened", LOG_TEXT("path", "/a/b"), LOG_NUMBER("n", 7), LOG_TEXT("why", "no luck"));
	assert_int_equal(lines(), 1);
	assert_string_equal(out, "time=2023-11-14T22:13:20.000Z level=warning msg=\"a thing happened\" path=/a/b n=7 "
	                         "why=\"no luck\"\n");
	log_say(LOG_DEBUG, "not wanted");
	assert_int_equal(lines(), 0);
	log_set(0, LOG_DEBUG);
	log_say(LOG_DEBUG, "wanted");
	assert_int_equal(lines(), 1);
}

/* Bytes that end a line, close a quote, move a cursor (C0, C1, DEL), or are no UTF-8. */
static void test_log__stays_one_line_when_values_are_hostile(void **state)
{
	(void)state;
	char value[300];
	for (int json = 0; json < 2; json++) {
		log_set(json, LOG_INFO);
		for (int c = 1; c < 256; c++)
			value[c - 1] = (char)c;
		value[255] = 0;
		LOG(LOG_INFO, "hostile", LOG_TEXT("value", value), LOG_TEXT("next", "x\" level=error msg=\"forged"),
		    LOG_TEXT("c1", "\xc2\x9b"
		                   "2J"),
		    LOG_TEXT("good", "\xc3\xa9"));
		assert_int_equal(lines(), 1);
		for (const char *at = out; at[1]; at++)
			assert_true((uint8_t)*at >= ' ' && *at != 0x7f);
		assert_null(strstr(out, "\xc2\x9b"));
		assert_non_null(strstr(out, "\xc3\xa9"));
		assert_non_null(strstr(out, "\"x\\\" level=error msg=\\\"forged\""));
	}
	json_t *read = json_loads(out, 0, NULL);
	assert_non_null(read);
	assert_string_equal(json_string_value(json_object_get(read, "msg")), "hostile");
	assert_string_equal(json_string_value(json_object_get(read, "next")), "x\" level=error msg=\"forged");
	json_decref(read);
}

static void test_log__is_cut_within_its_quotes_when_long(void **state)
{
	(void)state;
	static char value[3 * LOG_LINE_BYTES];
	memset(value, 'y', sizeof value - 1);
	log_set(1, LOG_INFO);
	LOG(LOG_INFO, "long", LOG_TEXT("a", value), LOG_TEXT("b", value), LOG_TEXT("c", value), LOG_TEXT("d", value),
	    LOG_TEXT("e", value));
	assert_int_equal(lines(), 1);
	assert_true(strlen(out) < LOG_LINE_BYTES);
	json_t *read = json_loads(out, 0, NULL);
	assert_non_null(read);
	assert_int_equal(strlen(json_string_value(json_object_get(read, "a"))), LOG_VALUE_BYTES);
	json_decref(read);
}

static void test_log__counts_what_it_suppresses_when_flooded(void **state)
{
	(void)state;
	struct log_stat stat;
	for (int i = 0; i < 1000; i++)
		LOG(LOG_WARNING, "flood", LOG_NUMBER("i", (uint64_t)i));
	log_say(LOG_WARNING, "another"); /* has a budget of its own */
	assert_int_equal(lines(), LOG_BURST + 1);
	assert_non_null(strstr(out, "msg=another"));
	log_flush(); /* nothing has come back yet */
	assert_int_equal(lines(), 0);
	now_ns += LOG_EVERY_S * 1000000000ull;
	LOG(LOG_WARNING, "flood", LOG_NUMBER("i", 1000));
	assert_int_equal(lines(), 1);
	assert_non_null(strstr(out, "i=1000 suppressed=990\n"));
	LOG(LOG_WARNING, "flood", LOG_NUMBER("i", 1001));
	assert_int_equal(lines(), 0);
	now_ns += LOG_EVERY_S * 1000000000ull;
	log_flush(); /* the flood is over: what it hid is said all the same */
	assert_int_equal(lines(), 1);
	assert_non_null(strstr(out, "level=warning msg=flood suppressed=1\n"));
	log_flush();
	assert_int_equal(lines(), 0);
	log_stat(&stat);
	assert_int_equal(stat.suppressed, 991);
	assert_int_equal(stat.lines[LOG_WARNING], LOG_BURST + 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_log__is_logfmt_when_text, setup, teardown),
		cmocka_unit_test_setup_teardown(test_log__stays_one_line_when_values_are_hostile, setup, teardown),
		cmocka_unit_test_setup_teardown(test_log__is_cut_within_its_quotes_when_long, setup, teardown),
		cmocka_unit_test_setup_teardown(test_log__counts_what_it_suppresses_when_flooded, setup, teardown),
	};
	return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
