/* SPDX-License-Identifier: Apache-2.0 */
/* A failed check ends the process and says which it was; the formats' encoders check what they are given. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/check.h"
#include "base/mem.h"
#include "golden/same.h"

/* Runs `what` in a child; what it says on stderr goes to text. Returns the signal that ended it, or 0. */
static int run_child(void (*what)(void), char *text, size_t max)
{
	int pipes[2], status;
	size_t used = 0;
	ssize_t got;
	pid_t child;

	assert_int_equal(pipe(pipes), 0);
	child = fork();
	assert_true(child >= 0);
	if (!child) {
		signal(SIGABRT, SIG_DFL);
		dup2(pipes[1], STDERR_FILENO);
		what();
		_exit(0);
	}
	close(pipes[1]);
	while (used < max - 1 && (got = read(pipes[0], text + used, max - 1 - used)) > 0)
		used += (size_t)got;
	text[used] = '\0';
	close(pipes[0]);
	assert_int_equal(waitpid(child, &status, 0), child);
	return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void passes(void)
{
	check(1 + 1 == 2);
}

static void fails(void)
{
	int answer = 41;

	check(answer == 42);
}

static void test_check__aborts_and_says_what_when_false(void **state)
{
	char text[4096];

	(void)state;
	assert_int_equal(run_child(passes, text, sizeof text), 0);
	assert_string_equal(text, "");
	assert_int_equal(run_child(fails, text, sizeof text), SIGABRT);
	assert_non_null(strstr(text, "test_check.c:"));
	assert_non_null(strstr(text, "check failed: answer == 42"));
}

static void copies_null(void)
{
	mem_copy_string(NULL);
}

static void encodes_a_version_that_is_not_ours(void)
{
	static uint8_t page[FMT_PAGE];
	struct fmt_label label = sample_label();

	label.version = FMT_VERSION + 1;
	segment_label_encode(&label, page);
}

static void encodes_a_payload_over_the_index(void)
{
	static uint8_t pages[SAMPLE_FILE_MAX];
	struct fmt_entry entries[SAMPLE_ENTRIES];
	struct fmt_group group = sample_group(entries);

	entries[0].page = group.first_page;
	segment_group_encode(&group, entries, 1, pages);
}

static void encodes_a_name_with_a_zero(void)
{
	static uint8_t bytes[SAMPLE_FILE_MAX];
	struct manifest manifest = sample_manifest();

	manifest.name = "a\0b";
	manifest.name_length = 3;
	manifest_encode(&manifest, bytes);
}

static void adds_a_record_without_a_type(void)
{
	static uint8_t page[FMT_PAGE];
	struct ledger_record record = {0};

	ledger_record_add(&record, page, 0);
}

static void test_check__ends_the_process_when_the_mistake_is_ours(void **state)
{
	static void (*const mistakes[])(void) = {
		copies_null, encodes_a_version_that_is_not_ours, encodes_a_payload_over_the_index, encodes_a_name_with_a_zero,
		adds_a_record_without_a_type,
	};
	char text[4096];

	(void)state;
	for (unsigned i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
		assert_int_equal(run_child(mistakes[i], text, sizeof text), SIGABRT);
		assert_non_null(strstr(text, "check failed: "));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_check__aborts_and_says_what_when_false),
		cmocka_unit_test(test_check__ends_the_process_when_the_mistake_is_ours),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
