/* SPDX-License-Identifier: Apache-2.0 */
/* The identity file: golden file, two copies, damage, newer versions, every bound. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "golden/same.h"

static uint8_t bytes[SAMPLE_FILE_MAX];

static void copy_reseal(unsigned copy)
{
	frame_seal(bytes + copy * IDENT_COPY_BYTES, IDENT_COPY_BYTES, frame_seed("CAIRNSTO"));
}

static void same_ident(const struct fmt_ident *a, const struct fmt_ident *b)
{
	assert_int_equal(a->version, b->version);
	assert_memory_equal(&a->bits, &b->bits, sizeof a->bits);
	assert_memory_equal(a->store_id, b->store_id, 16);
	assert_int_equal(a->created_at_s, b->created_at_s);
	assert_int_equal(a->memory_bytes, b->memory_bytes);
	assert_int_equal(a->free_floor_bytes, b->free_floor_bytes);
	assert_int_equal(a->ndevices, b->ndevices);
	for (uint32_t i = 0; i < FMT_DEVICES_MAX; i++) {
		assert_memory_equal(a->device[i].device_id, b->device[i].device_id, 16);
		assert_int_equal(a->device[i].budget_bytes, b->device[i].budget_bytes);
		assert_string_equal(a->device[i].path, b->device[i].path);
	}
}

static void test_ident__decodes_golden(void **state)
{
	struct fmt_ident want = sample_ident(), got;

	(void)state;
	same_golden("ident.v1.bin", sample_ident_file, bytes);
	assert_memory_equal(bytes, bytes + 8192, 8192);
	assert_memory_equal(bytes, "CAIRNSTO", 8);
	assert_int_equal(bytes_get32(bytes + 8), 1);
	assert_memory_equal(bytes + 32, want.store_id, 16);
	assert_int_equal(bytes_get64(bytes + 48), 1800000000);
	assert_int_equal(bytes_get64(bytes + 56), want.memory_bytes);
	assert_int_equal(bytes_get64(bytes + 64), want.free_floor_bytes);
	assert_int_equal(bytes_get32(bytes + 72), 2);
	assert_memory_equal(bytes + 128 + 320, want.device[1].device_id, 16);
	assert_int_equal(bytes_get64(bytes + 128 + 320 + 16), want.device[1].budget_bytes);
	assert_int_equal(bytes_get32(bytes + 128 + 320 + 24), 22);
	assert_memory_equal(bytes + 128 + 320 + 32, "/mnt/nvme1/flash.cairn", 23);
	assert_int_equal(ident_decode(bytes, IDENT_BYTES, &got), FMT_OK);
	same_ident(&got, &want);
}

static void test_ident__either_copy_is_enough_when_one_is_damaged(void **state)
{
	struct fmt_ident want = sample_ident(), got;

	(void)state;
	sample_ident_file(bytes);
	for (unsigned i = 0; i < IDENT_BYTES; i++) {
		bytes[i] ^= (uint8_t)(1u << i % 8);
		assert_int_equal(ident_decode(bytes, IDENT_BYTES, &got), FMT_OK);
		same_ident(&got, &want);
		bytes[i] ^= (uint8_t)(1u << i % 8);
	}
	memset(bytes, 0, IDENT_COPY_BYTES);
	assert_int_equal(ident_decode(bytes, IDENT_BYTES, &got), FMT_OK);
	bytes[IDENT_BYTES - 1] ^= 1;
	assert_int_equal(ident_decode(bytes, IDENT_BYTES, &got), FMT_BAD);
}

static void test_ident__first_copy_is_enough_when_cut(void **state)
{
	struct fmt_ident got;

	(void)state;
	sample_ident_file(bytes);
	for (size_t length = 0; length <= IDENT_BYTES; length += 512)
		assert_int_equal(ident_decode(bytes, length, &got), length < IDENT_COPY_BYTES ? FMT_BAD : FMT_OK);
	bytes[0] = 0;
	assert_int_equal(ident_decode(bytes, IDENT_BYTES - 1, &got), FMT_BAD);
	assert_int_equal(ident_decode(bytes, IDENT_BYTES, &got), FMT_OK);
}

static void test_ident__is_newer_when_a_whole_copy_says_so(void **state)
{
	struct fmt_ident got;

	(void)state;
	sample_ident_file(bytes);
	bytes_set32(bytes + 8, FMT_VERSION + 1);
	copy_reseal(0);
	bytes[IDENT_COPY_BYTES + 100] ^= 1;
	assert_int_equal(ident_decode(bytes, IDENT_BYTES, &got), FMT_NEWER);
	sample_ident_file(bytes);
	bytes[100] ^= 1;
	bytes_set32(bytes + IDENT_COPY_BYTES + 20, 1);
	copy_reseal(1);
	assert_int_equal(ident_decode(bytes, IDENT_BYTES, &got), FMT_NEWER);
}

static void test_ident__is_bad_when_out_of_bounds(void **state)
{
	static const struct {
		const char *what;
		uint32_t offset, width;
		uint64_t value;
		int result;
	} changes[] = {
		{"no version", 8, 4, 0, FMT_BAD},
		{"a ro_compat bit is the opener's to see", 16, 4, 1, FMT_OK},
		{"reserved bytes", 76, 4, 1, FMT_OK},
		{"padding", 8188, 4, 1, FMT_OK},
		{"no devices", 72, 4, 0, FMT_OK},
		{"16 devices", 72, 4, 16, FMT_OK},
		{"17 devices", 72, 4, 17, FMT_BAD},
		{"devices at the end of numbers", 72, 4, UINT32_MAX, FMT_BAD},
		{"a path too long", 128 + 320 + 24, 4, 256, FMT_BAD},
		{"a path with a 0 inside", 128 + 320 + 24, 4, 23, FMT_BAD},
		{"a path that ends early", 128 + 320 + 24, 4, 4, FMT_OK},
		{"a path at the end of numbers", 128 + 320 + 24, 4, UINT32_MAX, FMT_BAD},
	};
	struct fmt_ident got, untouched;

	(void)state;
	memset(&untouched, 0x5a, sizeof untouched);
	for (unsigned i = 0; i < sizeof changes / sizeof changes[0]; i++) {
		sample_ident_file(bytes);
		memcpy(bytes + changes[i].offset, &changes[i].value, changes[i].width);
		copy_reseal(0);
		memset(bytes + IDENT_COPY_BYTES, 0, IDENT_COPY_BYTES);
		memset(&got, 0x5a, sizeof got);
		if (ident_decode(bytes, IDENT_BYTES, &got) != changes[i].result)
			fail_msg("%s", changes[i].what);
		if (changes[i].result != FMT_OK)
			assert_memory_equal(&got, &untouched, sizeof got);
	}
}

static void test_ident__comes_back_when_full(void **state)
{
	struct fmt_ident want, got;

	(void)state;
	memset(&want, 0, sizeof want);
	want.version = 1;
	want.bits.compat = 5;
	want.ndevices = FMT_DEVICES_MAX;
	for (unsigned i = 0; i < FMT_DEVICES_MAX; i++) {
		sample_fill(want.device[i].device_id, 16, i);
		want.device[i].budget_bytes = UINT64_MAX - i;
		memset(want.device[i].path, 'a' + (int)i, IDENT_PATH_MAX - i);
	}
	memset(bytes, 0xee, sizeof bytes);
	ident_encode(&want, bytes);
	assert_int_equal(bytes[IDENT_BYTES], 0xee);
	assert_int_equal(ident_decode(bytes, IDENT_BYTES, &got), FMT_OK);
	same_ident(&got, &want);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ident__decodes_golden),
		cmocka_unit_test(test_ident__either_copy_is_enough_when_one_is_damaged),
		cmocka_unit_test(test_ident__first_copy_is_enough_when_cut),
		cmocka_unit_test(test_ident__is_newer_when_a_whole_copy_says_so),
		cmocka_unit_test(test_ident__is_bad_when_out_of_bounds),
		cmocka_unit_test(test_ident__comes_back_when_full),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
