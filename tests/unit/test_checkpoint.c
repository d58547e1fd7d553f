/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints (src/fmt/checkpoint.c): golden file read as a stream, damage, newer versions, every bound. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "golden/same.h"

static uint8_t bytes[SAMPLE_FILE_MAX];

static void head_reseal(void)
{
	frame_seal(bytes, FMT_PAGE, frame_seed("CAIRNCKP"));
}

static void same_entry_of_checkpoint(const struct checkpoint_entry *a, const struct checkpoint_entry *b)
{
	assert_memory_equal(a->key_prefix, b->key_prefix, 16);
	assert_memory_equal(a->parent_prefix, b->parent_prefix, 16);
	assert_int_equal(a->check, b->check);
	assert_int_equal(a->birth, b->birth);
	assert_int_equal(a->page, b->page);
	assert_int_equal(a->stored_length, b->stored_length);
	assert_int_equal(a->raw_length, b->raw_length);
	assert_int_equal(a->space_index, b->space_index);
	assert_int_equal(a->part, b->part);
	assert_int_equal(a->group, b->group);
	assert_int_equal(a->flags, b->flags);
}

static void test_checkpoint__decodes_golden(void **state)
{
	struct checkpoint_head head;
	struct checkpoint_life life;
	struct digest_xxh xxh;
	uint8_t device_id[16], space[32];
	size_t length;

	(void)state;
	length = same_golden("checkpoint.v1.bin", sample_checkpoint_file, bytes);
	assert_int_equal(length, 4 * FMT_PAGE);
	sample_fill(device_id, 16, 2);
	assert_memory_equal(bytes, "CAIRNCKP", 8);
	assert_int_equal(bytes_get32(bytes + 8), 1);
	assert_memory_equal(bytes + 32, device_id, 16);
	assert_int_equal(bytes_get64(bytes + 48), UINT64_C(0x200000001));
	assert_int_equal(bytes_get32(bytes + 64), 2);
	assert_int_equal(bytes_get32(bytes + 68), 2);
	assert_int_equal(bytes_get32(bytes + 72), 3);

	assert_int_equal(checkpoint_head_decode(bytes, &head), FMT_OK);
	assert_int_equal(head.version, 1);
	assert_memory_equal(head.device_id, device_id, 16);
	assert_int_equal(head.sequence, UINT64_C(0x200000001));
	assert_int_equal(head.nlives, 2);
	assert_int_equal(head.nspaces, 2);
	assert_int_equal(head.nentries, 3);
	assert_int_equal(checkpoint_size(head.nlives, head.nspaces, head.nentries), length);

	digest_xxh_init(&xxh, CHECKPOINT_SEED);
	for (size_t at = FMT_PAGE; at < length; at += FMT_PAGE)
		digest_xxh_add(&xxh, bytes + at, FMT_PAGE);
	assert_int_equal(digest_xxh_done(&xxh), head.body_check);
	assert_int_equal(checkpoint_lives_offset(), 4096);
	for (unsigned i = 0; i < 2; i++) {
		checkpoint_life_decode(bytes + 4096 + 16 * i, &life);
		assert_int_equal(life.segment, 7 + i);
		assert_int_equal(life.life, 41 + i);
		sample_fill(space, 32, 3 + i);
		assert_memory_equal(bytes + checkpoint_spaces_offset(2) + 32 * i, space, 32);
	}
	for (unsigned i = 0; i < SAMPLE_CHECKPOINT_ENTRIES; i++) {
		const uint8_t *at = bytes + checkpoint_entries_offset(2, 2) + 64 * i;
		struct checkpoint_entry want = sample_checkpoint_entry(i), got;

		assert_int_equal(checkpoint_entry_decode(at, 2, 1u << 20, &got), FMT_OK);
		same_entry_of_checkpoint(&got, &want);
	}
	/* Entry 1: part 62, group 14, flags 6. */
	assert_int_equal(bytes_get32(bytes + 12288 + 64 + 48), 1001);
	assert_int_equal(bytes_get16(bytes + 12288 + 64 + 60), 1);
	assert_int_equal(bytes_get16(bytes + 12288 + 64 + 62), 6 << 10 | 14 << 6 | 62);
}

static void test_checkpoint__head_is_bad_when_any_byte_differs(void **state)
{
	struct checkpoint_head head;

	(void)state;
	sample_checkpoint_file(bytes);
	for (unsigned i = 0; i < FMT_PAGE; i++) {
		bytes[i] ^= (uint8_t)(1u << i % 8);
		assert_int_equal(checkpoint_head_decode(bytes, &head), FMT_BAD);
		bytes[i] ^= (uint8_t)(1u << i % 8);
	}
	assert_int_equal(checkpoint_head_decode(bytes, &head), FMT_OK);
}

static void test_checkpoint__head_is_bad_when_out_of_bounds(void **state)
{
	static const struct {
		const char *what;
		uint32_t offset, value;
		int result;
	} changes[] = {
		{"the next version", 8, FMT_VERSION + 1, FMT_NEWER},
		{"no version", 8, 0, FMT_BAD},
		{"an incompat bit", 20, 1, FMT_NEWER},
		{"a compat bit", 12, 1, FMT_OK},
		{"reserved bytes", 76, 1, FMT_OK},
		{"the most lives", 64, CHECKPOINT_LIVES_MAX, FMT_OK},
		{"too many lives", 64, CHECKPOINT_LIVES_MAX + 1, FMT_BAD},
		{"too many spaces", 68, CHECKPOINT_SPACES_MAX + 1, FMT_BAD},
		{"too many entries", 72, CHECKPOINT_ENTRIES_MAX + 1, FMT_BAD},
		{"entries at the end of numbers", 72, UINT32_MAX, FMT_BAD},
	};
	struct checkpoint_head head;

	(void)state;
	for (unsigned i = 0; i < sizeof changes / sizeof changes[0]; i++) {
		sample_checkpoint_file(bytes);
		bytes_set32(bytes + changes[i].offset, changes[i].value);
		head_reseal();
		if (checkpoint_head_decode(bytes, &head) != changes[i].result)
			fail_msg("%s", changes[i].what);
	}
}

static void test_checkpoint__entry_is_bad_when_out_of_bounds(void **state)
{
	struct checkpoint_entry entry = sample_checkpoint_entry(0), got;
	uint8_t at[CHECKPOINT_ENTRY_BYTES];

	(void)state;
	/* Page 1000, less than a page long. */
	checkpoint_entry_encode(&entry, at);
	assert_int_equal(checkpoint_entry_decode(at, 1, 1001, &got), FMT_OK);
	assert_int_equal(checkpoint_entry_decode(at, 1, 1000, &got), FMT_BAD);
	assert_int_equal(checkpoint_entry_decode(at, 0, 1001, &got), FMT_BAD);
	bytes_set32(at + 52, FMT_PAGE + 1);
	assert_int_equal(checkpoint_entry_decode(at, 1, 1002, &got), FMT_OK);
	assert_int_equal(checkpoint_entry_decode(at, 1, 1001, &got), FMT_BAD);
	bytes_set32(at + 48, UINT32_MAX);
	assert_int_equal(checkpoint_entry_decode(at, 1, UINT32_MAX, &got), FMT_BAD);
	assert_int_equal(checkpoint_entry_decode(at, 1, UINT64_MAX, &got), FMT_OK);
	bytes_set32(at + 52, 0);
	assert_int_equal(checkpoint_entry_decode(at, 1, UINT64_MAX, &got), FMT_BAD);
	bytes_set32(at + 52, FMT_PART_BYTES_MAX);
	assert_int_equal(checkpoint_entry_decode(at, 1, UINT64_MAX, &got), FMT_OK);
	bytes_set32(at + 52, FMT_PART_BYTES_MAX + 1);
	assert_int_equal(checkpoint_entry_decode(at, 1, UINT64_MAX, &got), FMT_BAD);
	bytes_set32(at + 52, 1);
	bytes_set32(at + 56, 0);
	assert_int_equal(checkpoint_entry_decode(at, 1, UINT64_MAX, &got), FMT_BAD);
	bytes_set32(at + 56, UINT32_MAX);
	assert_int_equal(checkpoint_entry_decode(at, 1, UINT64_MAX, &got), FMT_BAD);
	bytes_set32(at + 56, 1);
	bytes_set16(at + 62, UINT16_MAX);
	assert_int_equal(checkpoint_entry_decode(at, 1, UINT64_MAX, &got), FMT_OK);
	assert_int_equal(got.part, 63);
	assert_int_equal(got.group, 15);
	assert_int_equal(got.flags, 7);
}

static void test_checkpoint__size_fits_32_bits_when_largest(void **state)
{
	(void)state;
	assert_int_equal(checkpoint_size(0, 0, 0), FMT_PAGE);
	assert_int_equal(checkpoint_size(1, 1, 1), 4 * FMT_PAGE);
	assert_int_equal(checkpoint_size(256, 128, 64), 4 * FMT_PAGE);
	assert_int_equal(checkpoint_size(257, 129, 65), 7 * FMT_PAGE);
	assert_true(checkpoint_size(CHECKPOINT_LIVES_MAX, CHECKPOINT_SPACES_MAX, CHECKPOINT_ENTRIES_MAX) <= UINT32_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_checkpoint__decodes_golden),
		cmocka_unit_test(test_checkpoint__head_is_bad_when_any_byte_differs),
		cmocka_unit_test(test_checkpoint__head_is_bad_when_out_of_bounds),
		cmocka_unit_test(test_checkpoint__entry_is_bad_when_out_of_bounds),
		cmocka_unit_test(test_checkpoint__size_fits_32_bits_when_largest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
