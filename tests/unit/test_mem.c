/* SPDX-License-Identifier: Apache-2.0 */
/* Allocation, and the switch that makes the N-th one fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/mem.h"

static int all_zero(const uint8_t *bytes, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (bytes[i])
			return 0;
	return 1;
}

static void test_mem__memory_is_zeroed_when_taken(void **state)
{
	(void)state;
	for (size_t size = 0; size < 5000; size = size * 3 + 1) {
		/* Twice, so that what the first one dirtied would show. */
		for (int round = 0; round < 2; round++) {
			uint8_t *a = mem_alloc(size), *b = mem_array(size, 3), *c = mem_aligned(4096, size);

			assert_true(a && b && c);
			assert_true(all_zero(a, size) && all_zero(b, size * 3) && all_zero(c, size));
			assert_int_equal((uintptr_t)c % 4096, 0);
			memset(a, 0xff, size);
			memset(b, 0xff, size * 3);
			memset(c, 0xff, size);
			mem_free(a);
			mem_free(b);
			mem_free(c);
		}
	}
	mem_free(NULL);
}

static void test_mem__aligned_takes_small_alignments(void **state)
{
	(void)state;
	for (size_t align = 1; align <= 64; align *= 2) {
		void *memory = mem_aligned(align, 10);

		assert_non_null(memory);
		assert_int_equal((uintptr_t)memory % align, 0);
		mem_free(memory);
	}
}

static void test_mem__array_is_null_when_it_overflows(void **state)
{
	(void)state;
	assert_null(mem_array(SIZE_MAX / 2, 3));
	assert_null(mem_array(SIZE_MAX, SIZE_MAX));
}

static void test_mem__grow_keeps_bytes(void **state)
{
	char *text = mem_grow(NULL, 4);

	(void)state;
	assert_non_null(text);
	memcpy(text, "abc", 4);
	text = mem_grow(text, 100000);
	assert_non_null(text);
	assert_string_equal(text, "abc");
	/* 0 bytes are a block too, not a free. */
	text = mem_grow(text, 0);
	assert_non_null(text);
	mem_free(text);
}

static void test_mem__copies_are_equal_and_apart(void **state)
{
	char text[] = "text";
	char *a = mem_copy_string(text), *b = mem_copy(text, 2), *c = mem_copy(NULL, 0);

	(void)state;
	assert_true(a && b && c);
	text[0] = 'n';
	assert_string_equal(a, "text");
	assert_memory_equal(b, "te", 2);
	mem_free(a);
	mem_free(b);
	mem_free(c);
}

static void test_mem__nth_fails_when_asked(void **state)
{
	(void)state;
	for (uint64_t n = 1; n <= 8; n++) {
		mem_fail_at(n, 0);
		for (uint64_t i = 1; i <= 10; i++) {
			void *memory;

			assert_int_equal(mem_failed(), i > n);
			switch (i % 6) {
			case 0:
				memory = mem_alloc(8);
				break;
			case 1:
				memory = mem_array(2, 4);
				break;
			case 2:
				memory = mem_grow(NULL, 8);
				break;
			case 3:
				memory = mem_aligned(64, 8);
				break;
			case 4:
				memory = mem_copy_string("text");
				break;
			default:
				memory = mem_copy("text", 4);
				break;
			}
			assert_int_equal(memory == NULL, i == n);
			mem_free(memory);
		}
	}
	mem_fail_at(0, 0);
	assert_int_equal(mem_failed(), 0);
}

static void test_mem__all_later_fail_when_asked(void **state)
{
	void *memory;

	(void)state;
	mem_fail_at(2, 1);
	memory = mem_alloc(1);
	assert_non_null(memory);
	for (int i = 0; i < 10; i++)
		assert_null(mem_alloc(1));
	/* A block that can not grow stays. */
	assert_null(mem_grow(memory, 100));
	mem_fail_at(0, 1);
	assert_int_equal(mem_failed(), 0);
	mem_free(memory);
	memory = mem_alloc(1);
	assert_non_null(memory);
	mem_free(memory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mem__memory_is_zeroed_when_taken),
		cmocka_unit_test(test_mem__aligned_takes_small_alignments),
		cmocka_unit_test(test_mem__array_is_null_when_it_overflows),
		cmocka_unit_test(test_mem__grow_keeps_bytes),
		cmocka_unit_test(test_mem__copies_are_equal_and_apart),
		cmocka_unit_test(test_mem__nth_fails_when_asked),
		cmocka_unit_test(test_mem__all_later_fail_when_asked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
