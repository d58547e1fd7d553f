/* SPDX-License-Identifier: Apache-2.0 */
/* The table of statuses and the thread's error text. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/err.h"
#include "cairn/cairn.h"

static const int statuses[] = {
	CAIRN_OK,         CAIRN_MISS,     CAIRN_DAMAGED,    CAIRN_EXISTED,   CAIRN_E_INVAL,  CAIRN_E_NOMEM,
	CAIRN_E_BUSY,     CAIRN_E_LATE,   CAIRN_E_CANCELED, CAIRN_E_FULL,    CAIRN_E_IO,     CAIRN_E_SIZE,
	CAIRN_E_CONFLICT, CAIRN_E_NOENT,  CAIRN_E_ACCESS,   CAIRN_E_RDONLY,  CAIRN_E_OWNED,  CAIRN_E_NOTSTORE,
	CAIRN_E_VERSION,  CAIRN_E_CORRUPT, CAIRN_E_QUOTA,   CAIRN_E_UNKNOWN,
};

static void test_err__name_differs_when_status_does(void **state)
{
	(void)state;
	for (unsigned i = 0; i < sizeof statuses / sizeof statuses[0]; i++) {
		assert_true(strlen(err_name(statuses[i])) > 0);
		assert_string_not_equal(err_name(statuses[i]), "unlisted");
		assert_true(strlen(err_describe(statuses[i])) > 0);
		for (unsigned j = 0; j < i; j++) {
			assert_string_not_equal(err_name(statuses[i]), err_name(statuses[j]));
			assert_string_not_equal(err_describe(statuses[i]), err_describe(statuses[j]));
		}
	}
	assert_string_equal(err_name(CAIRN_MISS), "miss");
	assert_string_equal(err_name(CAIRN_E_BUSY), "busy");
}

static void test_err__name_is_unlisted_when_status_is_unknown(void **state)
{
	(void)state;
	assert_string_equal(err_name(4), "unlisted");
	assert_string_equal(err_name(-1000), "unlisted");
	assert_true(strlen(err_describe(-1000)) > 0);
}

static void test_err__set_returns_code_and_keeps_text(void **state)
{
	(void)state;
	assert_int_equal(err_set(CAIRN_E_NOENT, "%s: no block %d", "a path", 7), CAIRN_E_NOENT);
	assert_string_equal(err_text(), "a path: no block 7");
	/* The text as its own argument. */
	err_set(CAIRN_E_IO, "while opening: %s", err_text());
	assert_string_equal(err_text(), "while opening: a path: no block 7");
}

static void test_err__text_is_one_line_when_argument_is_not(void **state)
{
	(void)state;
	err_set(CAIRN_E_INVAL, "name \"%s\"", "a\nb\tc\033[31m\x7f\xc3\xbc");
	assert_string_equal(err_text(), "name \"a b c [31m \xc3\xbc\"");
}

static void test_err__text_is_cut_when_too_long(void **state)
{
	char longer[2000];

	(void)state;
	memset(longer, 'x', sizeof longer - 1);
	longer[sizeof longer - 1] = '\0';
	err_set(CAIRN_E_INVAL, "%s", longer);
	assert_int_equal(strlen(err_text()), 511);
}

static void *other_thread(void *arg)
{
	(void)arg;
	if (err_text()[0] != '\0')
		return NULL;
	err_set(CAIRN_E_IO, "the other thread's");
	return strcmp(err_text(), "the other thread's") ? NULL : (void *)1;
}

static void test_err__text_is_per_thread(void **state)
{
	pthread_t thread;
	void *good;

	(void)state;
	err_set(CAIRN_E_IO, "ours");
	assert_int_equal(pthread_create(&thread, NULL, other_thread, NULL), 0);
	assert_int_equal(pthread_join(thread, &good), 0);
	assert_non_null(good);
	assert_string_equal(err_text(), "ours");
}

static void test_err__errno_maps_to_status(void **state)
{
	static const int pairs[][2] = {
		{EACCES, CAIRN_E_ACCESS}, {EPERM, CAIRN_E_ACCESS},   {EDQUOT, CAIRN_E_FULL},  {ENOSPC, CAIRN_E_FULL},
		{EFBIG, CAIRN_E_FULL},    {ENOENT, CAIRN_E_NOENT},   {ENOTDIR, CAIRN_E_NOENT}, {ENOMEM, CAIRN_E_NOMEM},
		{EROFS, CAIRN_E_RDONLY},  {EMFILE, CAIRN_E_BUSY},    {ENFILE, CAIRN_E_BUSY},  {EAGAIN, CAIRN_E_BUSY},
		{EBUSY, CAIRN_E_BUSY},    {EIO, CAIRN_E_IO},         {ENODEV, CAIRN_E_IO},    {EINVAL, CAIRN_E_IO},
		{0, CAIRN_E_IO},          {123456, CAIRN_E_IO},
	};

	(void)state;
	for (unsigned i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
		assert_int_equal(err_from_errno(pairs[i][0]), pairs[i][1]);
		assert_int_equal(err_from_errno(-pairs[i][0]), pairs[i][1]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_err__name_differs_when_status_does),
		cmocka_unit_test(test_err__name_is_unlisted_when_status_is_unknown),
		cmocka_unit_test(test_err__set_returns_code_and_keeps_text),
		cmocka_unit_test(test_err__text_is_one_line_when_argument_is_not),
		cmocka_unit_test(test_err__text_is_cut_when_too_long),
		cmocka_unit_test(test_err__text_is_per_thread),
		cmocka_unit_test(test_err__errno_maps_to_status),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
