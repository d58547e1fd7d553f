/* SPDX-License-Identifier: Apache-2.0 */
/* Little-endian loads and stores, the bounded reader and writer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/bytes.h"

static void test_bytes__are_little_endian_at_any_alignment(void **state)
{
	uint8_t bytes[16] = {0};

	(void)state;
	for (unsigned at = 0; at < 8; at++) {
		bytes_set64(bytes + at, UINT64_C(0x8877665544332211));
		assert_int_equal(bytes[at], 0x11);
		assert_int_equal(bytes[at + 7], 0x88);
		assert_int_equal(bytes_get64(bytes + at), UINT64_C(0x8877665544332211));
		assert_int_equal(bytes_get32(bytes + at + 1), 0x55443322u);
		assert_int_equal(bytes_get16(bytes + at + 6), 0x8877);
		bytes_set32(bytes + at, 0xaabbccddu);
		bytes_set16(bytes + at + 4, 0xeeff);
		assert_int_equal(bytes_get64(bytes + at), UINT64_C(0x8877eeffaabbccdd));
	}
}

static void test_bytes__round_up_goes_to_the_next_unit(void **state)
{
	(void)state;
	assert_int_equal(BYTES_ROUND_UP(0u, 4096u), 0);
	assert_int_equal(BYTES_ROUND_UP(1u, 4096u), 4096);
	assert_int_equal(BYTES_ROUND_UP(4096u, 4096u), 4096);
	assert_int_equal(BYTES_ROUND_UP(4097u, 4096u), 8192);
	assert_int_equal(BYTES_ROUND_UP(10u, 3u), 12);
}

static void test_bytes__reader_takes_what_there_is(void **state)
{
	static const uint8_t bytes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17};
	struct bytes_reader reader = bytes_reader_of(bytes, sizeof bytes);

	(void)state;
	assert_int_equal(bytes_take8(&reader), 1);
	assert_int_equal(bytes_take16(&reader), 0x0302);
	assert_int_equal(bytes_take32(&reader), 0x07060504);
	assert_int_equal(bytes_take64(&reader), UINT64_C(0x0f0e0d0c0b0a0908));
	assert_ptr_equal(bytes_take(&reader, 0), bytes + 15);
	assert_ptr_equal(bytes_take(&reader, 2), bytes + 15);
	assert_false(reader.failed);
	assert_ptr_equal(reader.at, reader.end);
}

static void test_bytes__reader_stays_failed_when_past_the_end(void **state)
{
	static const uint8_t bytes[] = {1, 2, 3};
	struct bytes_reader reader = bytes_reader_of(bytes, sizeof bytes);

	(void)state;
	assert_int_equal(bytes_take32(&reader), 0);
	assert_true(reader.failed);
	/* Though there would be enough for this. */
	assert_int_equal(bytes_take8(&reader), 0);
	assert_null(bytes_take(&reader, 0));
	assert_null(bytes_take(&reader, SIZE_MAX));
	reader = bytes_reader_of(bytes, sizeof bytes);
	assert_null(bytes_take(&reader, SIZE_MAX));
	reader = bytes_reader_of(bytes, 0);
	assert_int_equal(bytes_take64(&reader), 0);
	assert_int_equal(bytes_take16(&reader), 0);
	assert_true(reader.failed);
}

static void test_bytes__writer_writes_within_its_bound(void **state)
{
	uint8_t bytes[17];
	struct bytes_writer writer = bytes_writer_of(bytes, 16);

	(void)state;
	memset(bytes, 0xee, sizeof bytes);
	bytes_add8(&writer, 1);
	bytes_add16(&writer, 2);
	bytes_add32(&writer, 3);
	bytes_add64(&writer, 4);
	bytes_add(&writer, NULL, 0);
	bytes_add(&writer, "z", 1);
	assert_false(writer.failed);
	assert_int_equal(writer.used, 16);
	assert_memory_equal(bytes, "\1\2\0\3\0\0\0\4\0\0\0\0\0\0\0z\xee", 17);
}

static void test_bytes__writer_counts_on_when_full(void **state)
{
	uint8_t bytes[8];
	struct bytes_writer writer = bytes_writer_of(bytes, 4);

	(void)state;
	memset(bytes, 0xee, sizeof bytes);
	bytes_add16(&writer, 1);
	bytes_add32(&writer, 2);
	bytes_add8(&writer, 3);
	assert_true(writer.failed);
	assert_int_equal(writer.used, 7);
	assert_memory_equal(bytes, "\1\0\xee\xee\xee\xee\xee\xee", 8);
	/* Only to measure. */
	writer = bytes_writer_of(NULL, 0);
	bytes_add64(&writer, 1);
	assert_true(writer.failed);
	assert_int_equal(writer.used, 8);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bytes__are_little_endian_at_any_alignment),
		cmocka_unit_test(test_bytes__round_up_goes_to_the_next_unit),
		cmocka_unit_test(test_bytes__reader_takes_what_there_is),
		cmocka_unit_test(test_bytes__reader_stays_failed_when_past_the_end),
		cmocka_unit_test(test_bytes__writer_writes_within_its_bound),
		cmocka_unit_test(test_bytes__writer_counts_on_when_full),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
