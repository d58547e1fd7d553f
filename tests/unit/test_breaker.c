/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of policy/breaker.c, at given times. One thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "policy/breaker.h"

#define S 1000000000ull

static const struct breaker_rule rule = {.failures = 3, .pause_ns = 1 * S, .pause_max_ns = 5 * S};

static void fail_times(struct breaker *breaker, int n, uint64_t now)
{
	for (int i = 0; i < n; i++)
		breaker_bad(breaker, breaker_ask(breaker, now), now);
}

static void test_breaker__opens_when_failures_come_in_a_row(void **state)
{
	struct breaker b;
	(void)state;
	breaker_init(&b, &rule);
	fail_times(&b, 2, 0);
	breaker_good(&b, breaker_ask(&b, 0)); /* one good one between them: it is well */
	fail_times(&b, 2, 0);
	assert_int_equal(b.state, BREAKER_CLOSED);
	fail_times(&b, 1, 0);
	assert_int_equal(b.state, BREAKER_OPEN);
	assert_int_equal(breaker_ask(&b, S - 1), 0);
	assert_true(breaker_shut(&b, S - 1));
	assert_false(breaker_shut(&b, S));
	assert_int_equal(b.opened, 1);
	assert_int_equal(b.refused, 1);
}

static void test_breaker__one_probe_when_the_pause_is_over(void **state)
{
	struct breaker b;
	(void)state;
	breaker_init(&b, &rule);
	fail_times(&b, 3, 0);
	uint32_t probe = breaker_ask(&b, S);
	assert_int_not_equal(probe, 0);
	assert_int_equal(b.state, BREAKER_PROBING);
	assert_int_equal(breaker_ask(&b, S), 0);
	breaker_good(&b, probe);
	assert_int_equal(b.state, BREAKER_CLOSED);
	assert_int_not_equal(breaker_ask(&b, S), 0);
	/* All is as new: three again, and the first pause again. */
	fail_times(&b, 2, 2 * S);
	assert_int_equal(b.state, BREAKER_CLOSED);
	fail_times(&b, 1, 2 * S);
	assert_int_equal(breaker_ask(&b, 3 * S - 1), 0);
	assert_int_not_equal(breaker_ask(&b, 3 * S), 0);
}

static void test_breaker__pause_doubles_to_its_most_when_probes_fail(void **state)
{
	static const uint64_t pauses[] = {1 * S, 2 * S, 4 * S, 5 * S, 5 * S};
	struct breaker b;
	uint64_t now = 0;
	(void)state;
	breaker_init(&b, &rule);
	fail_times(&b, 3, now);
	for (size_t i = 0; i < sizeof(pauses) / sizeof(pauses[0]); i++) {
		assert_int_equal(breaker_ask(&b, now + pauses[i] - 1), 0);
		now += pauses[i];
		uint32_t probe = breaker_ask(&b, now);
		assert_int_not_equal(probe, 0);
		breaker_bad(&b, probe, now);
		assert_int_equal(b.state, BREAKER_OPEN);
	}
	assert_int_equal(b.opened, 6);
}

static void test_breaker__old_answers_do_not_count_when_it_changed(void **state)
{
	struct breaker b;
	uint32_t old[8];
	(void)state;
	breaker_init(&b, &rule);
	for (int i = 0; i < 8; i++)
		old[i] = breaker_ask(&b, 0);
	for (int i = 0; i < 6; i++)
		breaker_bad(&b, old[i], 0);
	assert_int_equal(b.opened, 1);
	breaker_good(&b, old[6]); /* it was under way before: the device is no better for it */
	assert_int_equal(b.state, BREAKER_OPEN);
	uint32_t probe = breaker_ask(&b, S);
	breaker_bad(&b, old[7], S);
	breaker_good(&b, old[7]);
	assert_int_equal(b.state, BREAKER_PROBING);
	breaker_good(&b, probe);
	assert_int_equal(b.state, BREAKER_CLOSED);
}

static void test_breaker__a_probe_that_hangs_counts_as_bad(void **state)
{
	struct breaker b;
	(void)state;
	breaker_init(&b, &rule);
	fail_times(&b, 3, 0);
	uint32_t probe = breaker_ask(&b, S);
	assert_int_equal(breaker_ask(&b, 3 * S - 1), 0);
	assert_int_equal(breaker_ask(&b, 3 * S), 0); /* two seconds later it is not back */
	assert_int_equal(b.state, BREAKER_OPEN);
	breaker_good(&b, probe);
	assert_int_equal(b.state, BREAKER_OPEN);
	assert_int_not_equal(breaker_ask(&b, 5 * S), 0);
}

static void test_breaker__another_probes_when_a_turn_is_given_back(void **state)
{
	struct breaker b;
	(void)state;
	breaker_init(&b, &rule);
	breaker_give_back(&b, breaker_ask(&b, 0), 0);
	assert_int_equal(b.state, BREAKER_CLOSED);
	fail_times(&b, 3, 0);
	breaker_give_back(&b, breaker_ask(&b, S), S);
	assert_int_equal(b.opened, 1);
	uint32_t probe = breaker_ask(&b, S);
	assert_int_not_equal(probe, 0);
	breaker_good(&b, probe);
	assert_int_equal(b.state, BREAKER_CLOSED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_breaker__opens_when_failures_come_in_a_row),
		cmocka_unit_test(test_breaker__one_probe_when_the_pause_is_over),
		cmocka_unit_test(test_breaker__pause_doubles_to_its_most_when_probes_fail),
		cmocka_unit_test(test_breaker__old_answers_do_not_count_when_it_changed),
		cmocka_unit_test(test_breaker__a_probe_that_hangs_counts_as_bad),
		cmocka_unit_test(test_breaker__another_probes_when_a_turn_is_given_back),
	};
	return cmocka_run_group_tests_name("breaker", tests, NULL, NULL);
}
