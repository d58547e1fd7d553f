/* SPDX-License-Identifier: Apache-2.0 */
/* Label, commit group, footer and the check of a part: golden files, damage, newer versions, every bound. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "golden/same.h"

static uint8_t bytes[SAMPLE_FILE_MAX];
static struct fmt_entry entries[FMT_GROUP_ENTRIES_MAX];

/* A change of foreign bytes behind a good checksum, and what decode must say. */
struct change {
	const char *what;
	uint32_t offset, width;
	uint64_t value;
	int result;
};

static void change_apply(const struct change *change, uint8_t *at)
{
	memcpy(at + change->offset, &change->value, change->width); /* little endian, as the formats */
}

/* ---- label ---- */

static void label_reseal(void)
{
	frame_seal(bytes, FMT_PAGE, frame_seed("CAIRNDEV"));
}

static void test_segment__blank_is_no_label_and_any_flipped_bit_is_damage(void **state)
{
	(void)state;
	struct fmt_label label;
	uint64_t size = 0;
	same_golden("blank.v1.bin", sample_blank_file, bytes);
	assert_int_equal(segment_blank_decode(bytes, &size), FMT_OK);
	assert_true(size == SAMPLE_BLANK_BYTES);
	assert_int_equal(segment_label_decode(bytes, &label), FMT_BAD);
	for (uint32_t bit = 0; bit < 8 * FMT_PAGE; bit += bit < 400 ? 1 : 97) {
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_int_equal(segment_blank_decode(bytes, &size), FMT_BAD);
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
}

static void test_segment__label_decodes_golden(void **state)
{
	struct fmt_label want = sample_label(), got;

	(void)state;
	same_golden("label.v1.bin", sample_label_file, bytes);
	/* By hand, at the offsets of docs/FORMAT.md. */
	assert_memory_equal(bytes, "CAIRNDEV", 8);
	assert_int_equal(bytes_get32(bytes + 8), 1);
	assert_int_equal(bytes_get32(bytes + 12), 0x80000001u);
	assert_int_equal(bytes_get32(bytes + 16), 0);
	assert_int_equal(bytes_get32(bytes + 20), 0);
	assert_memory_equal(bytes + 32, want.store_id, 16);
	assert_memory_equal(bytes + 48, want.device_id, 16);
	assert_int_equal(bytes_get32(bytes + 64), 3);
	assert_int_equal(bytes_get32(bytes + 68), 1 << 20);
	assert_int_equal(bytes_get32(bytes + 72), 65536);
	assert_int_equal(bytes_get64(bytes + 80), 8192);
	assert_int_equal(bytes_get64(bytes + 88), 1 << 20);

	assert_int_equal(segment_label_decode(bytes, &got), FMT_OK);
	assert_int_equal(got.version, 1);
	assert_int_equal(got.bits.compat, want.bits.compat);
	assert_int_equal(got.bits.ro_compat, 0);
	assert_int_equal(got.bits.incompat, 0);
	assert_memory_equal(got.store_id, want.store_id, 16);
	assert_memory_equal(got.device_id, want.device_id, 16);
	assert_int_equal(got.device_index, want.device_index);
	assert_int_equal(got.segment_bytes, want.segment_bytes);
	assert_int_equal(got.ledger_bytes, want.ledger_bytes);
	assert_int_equal(got.ledger_offset, want.ledger_offset);
	assert_int_equal(got.segments_offset, want.segments_offset);
}

static void test_segment__label_is_bad_when_any_byte_differs(void **state)
{
	struct fmt_label got;
	struct fmt_label untouched;

	(void)state;
	memset(&got, 0x5a, sizeof got);
	memset(&untouched, 0x5a, sizeof untouched);
	sample_label_file(bytes);
	for (unsigned i = 0; i < FMT_PAGE; i++) {
		bytes[i] ^= (uint8_t)(1u << i % 8);
		/* A flipped bit in the version or the bits too: damage is never taken for a newer format. */
		assert_int_equal(segment_label_decode(bytes, &got), FMT_BAD);
		bytes[i] ^= (uint8_t)(1u << i % 8);
	}
	assert_memory_equal(&got, &untouched, sizeof got);
	assert_int_equal(segment_label_decode(bytes, &got), FMT_OK);
}

static void test_segment__label_is_bad_when_out_of_bounds(void **state)
{
	static const struct change changes[] = {
		{"the next version", 8, 4, FMT_VERSION + 1, FMT_NEWER},
		{"a far version", 8, 4, UINT32_MAX, FMT_NEWER},
		{"no version", 8, 4, 0, FMT_BAD},
		{"an incompat bit", 20, 4, 1u << 31, FMT_NEWER},
		{"another format", 0, 8, 0, FMT_BAD},
		{"a ro_compat bit is the opener's to see", 16, 4, 2, FMT_OK},
		{"reserved bytes", 76, 4, 7, FMT_OK},
		{"more reserved bytes", 4088, 8, 7, FMT_OK},
		{"a 17th device", 64, 4, 16, FMT_BAD},
		{"a segment of no bytes", 68, 4, 0, FMT_BAD},
		{"a segment of no power of two", 68, 4, (1u << 20) + 4096, FMT_BAD},
		{"a segment too small", 68, 4, FMT_SEGMENT_BYTES_MIN / 2, FMT_BAD},
		{"the smallest segment", 68, 4, FMT_SEGMENT_BYTES_MIN, FMT_OK},
		{"the largest segment", 68, 4, FMT_SEGMENT_BYTES_MAX, FMT_OK},
		{"a segment too large", 68, 4, 2u * FMT_SEGMENT_BYTES_MAX, FMT_BAD},
		{"no ledger", 72, 4, 0, FMT_BAD},
		{"half a page of ledger", 72, 4, 2048, FMT_BAD},
		{"a ledger that reaches the segments", 72, 4, 1u << 18, FMT_BAD},
		{"the longest ledger before the segments", 72, 4, (1u << 18) - 4096, FMT_OK},
		{"the ledger over a label", 80, 8, 4096, FMT_BAD},
		{"the ledger behind the segments", 80, 8, 2u << 20, FMT_BAD},
		{"the ledger off a page", 80, 8, 8193, FMT_BAD},
		{"the ledger at the end of numbers", 80, 8, UINT64_MAX - 4095, FMT_BAD},
		{"segments off a page", 88, 8, (1u << 20) + 1, FMT_BAD},
		{"segments before the ledger", 88, 8, 4096, FMT_BAD},
		{"segments at the end of numbers", 88, 8, UINT64_MAX - 4095, FMT_BAD},
	};
	struct fmt_label got;

	(void)state;
	for (unsigned i = 0; i < sizeof changes / sizeof changes[0]; i++) {
		sample_label_file(bytes);
		change_apply(&changes[i], bytes);
		label_reseal();
		if (segment_label_decode(bytes, &got) != changes[i].result)
			fail_msg("%s", changes[i].what);
	}
}

/* ---- group ---- */

static void group_reseal(void)
{
	frame_seal(bytes, (size_t)segment_index_pages(SAMPLE_ENTRIES) * FMT_PAGE, SAMPLE_SALT);
}

static int group_decode(struct fmt_group *ret_group)
{
	return segment_group_decode(bytes, segment_index_pages(SAMPLE_ENTRIES), SAMPLE_SEGMENT_PAGES, SAMPLE_SALT,
	                            ret_group, entries, FMT_GROUP_ENTRIES_MAX);
}

static void test_segment__group_decodes_golden(void **state)
{
	struct fmt_entry want_entries[SAMPLE_ENTRIES];
	struct fmt_group want = sample_group(want_entries), got;
	const uint8_t *entry = bytes + 128 + 4 * 192;

	(void)state;
	same_golden("group.v1.bin", sample_group_file, bytes);
	assert_memory_equal(bytes, "CAIRNGRP", 8);
	assert_int_equal(bytes_get32(bytes + 8), 1);
	assert_int_equal(bytes_get32(bytes + 32), 2);
	assert_int_equal(bytes_get32(bytes + 36), 39);
	assert_int_equal(bytes_get32(bytes + 40), 12);
	assert_int_equal(bytes_get32(bytes + 44), 25);
	assert_int_equal(bytes_get32(bytes + 48), 7);
	assert_int_equal(bytes_get64(bytes + 56), 41);
	assert_int_equal(bytes_get64(bytes + 64), UINT64_C(0x200000003));
	assert_int_equal(bytes_get64(bytes + 72), UINT64_C(0x200000001));
	assert_int_equal(bytes_get64(bytes + 80), 99);
	assert_memory_equal(bytes + 88, want.tenant, 16);
	assert_memory_equal(entry, want_entries[4].key, 32);
	assert_memory_equal(entry + 32, want_entries[4].space, 32);
	assert_memory_equal(entry + 64, want_entries[4].parent, 32);
	assert_int_equal(bytes_get64(entry + 96), UINT64_C(0x0102030405060704));
	assert_memory_equal(entry + 104, want_entries[4].stored_check, 16);
	assert_int_equal(bytes_get64(entry + 120), UINT64_C(0x1000000004));
	assert_int_equal(bytes_get32(entry + 128), 5);
	assert_int_equal(bytes_get32(entry + 132), 5);
	assert_int_equal(bytes_get32(entry + 136), 20);
	assert_int_equal(bytes_get32(entry + 140), 0xdeadbeefu);
	assert_memory_equal(entry + 144, want_entries[4].nonce, 12);
	assert_int_equal(bytes_get16(entry + 156), 20);
	assert_int_equal(bytes_get16(entry + 158), 4);
	assert_int_equal(entry[160], 0);
	assert_int_equal(entry[161], 4);

	assert_int_equal(segment_group_peek(bytes, SAMPLE_SEGMENT_PAGES, &got), FMT_OK);
	same_group(&got, &want);
	memset(&got, 0, sizeof got);
	assert_int_equal(group_decode(&got), FMT_OK);
	same_group(&got, &want);
	for (unsigned i = 0; i < SAMPLE_ENTRIES; i++)
		same_entry(&entries[i], &want_entries[i]);
}

static void test_segment__group_is_bad_when_any_byte_differs(void **state)
{
	struct fmt_group got;
	size_t length = sample_group_file(bytes);

	(void)state;
	for (size_t i = 0; i < length; i++) {
		bytes[i] ^= (uint8_t)(1u << i % 8);
		assert_int_equal(group_decode(&got), FMT_BAD);
		bytes[i] ^= (uint8_t)(1u << i % 8);
	}
	assert_int_equal(group_decode(&got), FMT_OK);
}

static void test_segment__group_is_bad_when_salt_differs(void **state)
{
	struct fmt_group got;

	(void)state;
	/* What a payload that looks like an index comes to: its writer does not know the salt. */
	sample_group_file(bytes);
	assert_int_equal(segment_group_decode(bytes, 2, 256, SAMPLE_SALT, &got, entries, 1024), FMT_OK);
	assert_int_equal(segment_group_decode(bytes, 2, 256, SAMPLE_SALT + 1, &got, entries, 1024), FMT_BAD);
	assert_int_equal(segment_group_decode(bytes, 2, 256, 0, &got, entries, 1024), FMT_BAD);
}

static void test_segment__group_is_bad_when_cut_or_too_large(void **state)
{
	struct fmt_group got;

	(void)state;
	sample_group_file(bytes);
	assert_int_equal(segment_group_decode(bytes, 0, SAMPLE_SEGMENT_PAGES, SAMPLE_SALT, &got, entries, 1024), FMT_BAD);
	assert_int_equal(segment_group_decode(bytes, 1, SAMPLE_SEGMENT_PAGES, SAMPLE_SALT, &got, entries, 1024), FMT_BAD);
	assert_int_equal(segment_group_decode(bytes, 2, SAMPLE_SEGMENT_PAGES, SAMPLE_SALT, &got, entries, 24), FMT_BAD);
	assert_int_equal(segment_group_decode(bytes, 2, SAMPLE_SEGMENT_PAGES, SAMPLE_SALT, &got, entries, 25), FMT_OK);
	assert_int_equal(segment_group_decode(bytes, 16, SAMPLE_SEGMENT_PAGES, SAMPLE_SALT, &got, entries, 25), FMT_OK);
	assert_int_equal(segment_group_decode(bytes, 2, 51, SAMPLE_SALT, &got, entries, 25), FMT_OK);
	assert_int_equal(segment_group_decode(bytes, 2, 50, SAMPLE_SALT, &got, entries, 25), FMT_BAD);
	assert_int_equal(segment_group_decode(bytes, 2, 0, SAMPLE_SALT, &got, entries, 25), FMT_BAD);
}

static void test_segment__group_is_bad_when_out_of_bounds(void **state)
{
	/* The sample begins at page 12, has 2 pages of index and 39 in all: payloads lie in [14, 51); entry 0 takes one. */
	static const struct change changes[] = {
		{"the next version", 8, 4, FMT_VERSION + 1, FMT_NEWER},
		{"no version", 8, 4, 0, FMT_BAD},
		{"an incompat bit", 20, 4, 1, FMT_NEWER},
		{"compat and ro_compat bits", 12, 8, UINT64_MAX, FMT_OK},
		{"another format", 0, 8, 1, FMT_BAD},
		{"reserved bytes of the head", 104, 8, 1, FMT_OK},
		{"no entries", 44, 4, 0, FMT_BAD},
		{"entries for less index", 44, 4, 20, FMT_BAD},
		{"entries for more index", 44, 4, 42, FMT_BAD},
		{"too many entries", 44, 4, FMT_GROUP_ENTRIES_MAX + 1, FMT_BAD},
		{"entries at the end of numbers", 44, 4, UINT32_MAX, FMT_BAD},
		{"no index", 32, 4, 0, FMT_BAD},
		{"an index at the end of numbers", 32, 4, UINT32_MAX, FMT_BAD},
		{"no pages", 36, 4, 0, FMT_BAD},
		{"no payload", 36, 4, 2, FMT_BAD},
		{"one page less than the payloads", 36, 4, 38, FMT_BAD},
		{"as long as the segment", 36, 4, SAMPLE_SEGMENT_PAGES - 12, FMT_OK},
		{"longer than the segment", 36, 4, SAMPLE_SEGMENT_PAGES - 11, FMT_BAD},
		{"pages at the end of numbers", 36, 4, UINT32_MAX, FMT_BAD},
		{"behind the segment", 40, 4, SAMPLE_SEGMENT_PAGES, FMT_BAD},
		{"at the end of numbers", 40, 4, UINT32_MAX, FMT_BAD},
		{"a payload over the index", 128 + 136, 4, 13, FMT_BAD},
		{"a payload before the group", 128 + 136, 4, 0, FMT_BAD},
		{"a payload in the last page", 128 + 136, 4, 50, FMT_OK},
		{"a payload behind the group", 128 + 136, 4, 51, FMT_BAD},
		{"a payload at the end of numbers", 128 + 136, 4, UINT32_MAX, FMT_BAD},
		{"no raw bytes", 128 + 128, 8, UINT64_C(1) << 32, FMT_BAD},
		{"no stored bytes", 128 + 132, 4, 0, FMT_BAD},
		{"raw and stored bytes that differ", 128 + 128, 4, 2, FMT_BAD},
		{"a codec", 128 + 160, 1, 1, FMT_NEWER},
		{"a payload longer than the group", 128 + 128, 8, UINT64_C(0x2500100025001), FMT_BAD},
		{"over 64 MiB", 128 + 128, 8, UINT64_C(0x400000104000001), FMT_BAD},
		{"at the end of lengths", 128 + 128, 8, UINT64_MAX, FMT_BAD},
		{"part 63", 128 + 156, 2, 63, FMT_OK},
		{"part 64", 128 + 156, 2, 64, FMT_BAD},
		{"group 15", 128 + 158, 2, 15, FMT_OK},
		{"group 16", 128 + 158, 2, 16, FMT_BAD},
		{"an unknown flag", 128 + 161, 1, 0x80, FMT_OK},
		{"reserved bytes of an entry", 128 + 162, 8, 1, FMT_OK},
		{"an entry of the second page", 128 + 24 * 192 + 132, 4, 0, FMT_BAD},
		{"padding", 8191, 1, 1, FMT_OK},
	};
	struct fmt_group got, untouched;

	(void)state;
	memset(&untouched, 0x5a, sizeof untouched);
	for (unsigned i = 0; i < sizeof changes / sizeof changes[0]; i++) {
		sample_group_file(bytes);
		change_apply(&changes[i], bytes);
		group_reseal();
		memset(&got, 0x5a, sizeof got);
		if (group_decode(&got) != changes[i].result)
			fail_msg("%s", changes[i].what);
		if (changes[i].result != FMT_OK)
			assert_memory_equal(&got, &untouched, sizeof got);
	}
}

static void test_segment__group_hides_unknown_flags_when_decoded(void **state)
{
	struct fmt_group got;

	(void)state;
	sample_group_file(bytes);
	bytes[128 + 161] = 0xff;
	group_reseal();
	assert_int_equal(group_decode(&got), FMT_OK);
	assert_int_equal(entries[0].flags, FMT_PART_TAIL | FMT_PART_MANIFEST | FMT_PART_MOVED);
}

static void test_segment__peek_believes_no_version_when_unproven(void **state)
{
	struct fmt_group got;

	(void)state;
	sample_group_file(bytes);
	bytes_set32(bytes + 8, 9);
	bytes_set32(bytes + 44, 0); /* a newer version may mean something else by it */
	assert_int_equal(segment_group_peek(bytes, SAMPLE_SEGMENT_PAGES, &got), FMT_OK);
	assert_int_equal(got.index_pages, 2);
	assert_int_equal(group_decode(&got), FMT_BAD);
	group_reseal();
	assert_int_equal(group_decode(&got), FMT_NEWER);
	/* The index has a bound in every version, since buffers have. */
	bytes_set32(bytes + 32, FMT_INDEX_PAGES_MAX + 1);
	bytes_set32(bytes + 36, FMT_INDEX_PAGES_MAX + 2);
	assert_int_equal(segment_group_peek(bytes, SAMPLE_SEGMENT_PAGES, &got), FMT_BAD);
}

static void test_segment__peek_is_bad_when_not_a_group(void **state)
{
	struct fmt_group got;

	(void)state;
	memset(bytes, 0, FMT_PAGE);
	assert_int_equal(segment_group_peek(bytes, SAMPLE_SEGMENT_PAGES, &got), FMT_BAD);
	memset(bytes, 0xff, FMT_PAGE);
	assert_int_equal(segment_group_peek(bytes, SAMPLE_SEGMENT_PAGES, &got), FMT_BAD);
	sample_label_file(bytes);
	assert_int_equal(segment_group_peek(bytes, SAMPLE_SEGMENT_PAGES, &got), FMT_BAD);
}

static void test_segment__group_comes_back_when_of_any_size(void **state)
{
	static uint8_t index[FMT_INDEX_PAGES_MAX * FMT_PAGE];
	static struct fmt_entry want[FMT_GROUP_ENTRIES_MAX];
	static const uint32_t sizes[] = {1, 20, 21, 41, 42, 1023, 1024};
	struct fmt_group group = {.version = 1, .first_page = 3}, got;

	(void)state;
	assert_int_equal(segment_index_pages(FMT_GROUP_ENTRIES_MAX), FMT_INDEX_PAGES_MAX);
	for (unsigned s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
		group.nentries = sizes[s];
		group.index_pages = segment_index_pages(sizes[s]);
		group.total_pages = group.index_pages + sizes[s];
		for (uint32_t i = 0; i < sizes[s]; i++) {
			want[i] = sample_entry(0, 3 + group.index_pages + i);
			want[i].birth = i;
		}
		memset(index, 0xee, sizeof index);
		segment_group_encode(&group, want, 5, index);
		if (group.index_pages < FMT_INDEX_PAGES_MAX)
			assert_int_equal(index[group.index_pages * FMT_PAGE], 0xee);
		assert_int_equal(segment_group_decode(index, group.index_pages, 2048, 5, &got, entries, sizes[s]), FMT_OK);
		same_group(&got, &group);
		for (uint32_t i = 0; i < sizes[s]; i++)
			same_entry(&entries[i], &want[i]);
	}
}

/* ---- footer ---- */

#define FOOTER_PAGES 2u /* of the sample's entries; the trailer follows */

static int footer_decode(struct fmt_footer *ret_footer)
{
	const uint8_t *trailer = bytes + FOOTER_PAGES * FMT_PAGE;
	int result = segment_trailer_decode(trailer, SAMPLE_SEGMENT_PAGES, SAMPLE_SALT, ret_footer);

	if (result != FMT_OK)
		return result;
	return segment_footer_decode(ret_footer, trailer, bytes, SAMPLE_SEGMENT_PAGES, SAMPLE_SALT, entries);
}

/* `deep`: also the check of the entries. */
static void footer_reseal(int deep)
{
	uint8_t *trailer = bytes + FOOTER_PAGES * FMT_PAGE;

	if (deep)
		bytes_set64(trailer + 104, digest_xxh3(bytes, FOOTER_PAGES * FMT_PAGE, SAMPLE_SALT));
	frame_seal(trailer, FMT_PAGE, SAMPLE_SALT);
}

static void test_segment__footer_decodes_golden(void **state)
{
	struct fmt_entry want_entries[SAMPLE_ENTRIES];
	struct fmt_footer want = sample_footer(want_entries), got;
	const uint8_t *trailer = bytes + FOOTER_PAGES * FMT_PAGE;

	(void)state;
	same_golden("footer.v1.bin", sample_footer_file, bytes);
	assert_memory_equal(trailer, "CAIRNFTR", 8);
	assert_int_equal(bytes_get32(trailer + 8), 1);
	assert_int_equal(bytes_get32(trailer + 32), 253);
	assert_int_equal(bytes_get32(trailer + 36), 2);
	assert_int_equal(bytes_get32(trailer + 40), 25);
	assert_int_equal(bytes_get32(trailer + 44), 51);
	assert_int_equal(bytes_get32(trailer + 48), 7);
	assert_int_equal(bytes_get64(trailer + 56), 41);
	assert_int_equal(bytes_get64(trailer + 64), UINT64_C(0x200000002));
	assert_int_equal(bytes_get64(trailer + 72), UINT64_C(0x200000003));
	assert_int_equal(bytes_get64(trailer + 80), UINT64_C(0x200000002));
	assert_memory_equal(trailer + 88, want.tenant, 16);
	assert_int_equal(bytes_get64(trailer + 104), digest_xxh3(bytes, 8192, SAMPLE_SALT));
	assert_memory_equal(bytes + 192, want_entries[1].key, 32);

	assert_int_equal(footer_decode(&got), FMT_OK);
	same_footer(&got, &want);
	for (unsigned i = 0; i < SAMPLE_ENTRIES; i++)
		same_entry(&entries[i], &want_entries[i]);
}

static void test_segment__footer_is_bad_when_any_byte_differs(void **state)
{
	struct fmt_footer got;
	size_t length = sample_footer_file(bytes);

	(void)state;
	for (size_t i = 0; i < length; i++) {
		bytes[i] ^= (uint8_t)(1u << i % 8);
		assert_int_equal(footer_decode(&got), FMT_BAD);
		bytes[i] ^= (uint8_t)(1u << i % 8);
	}
	assert_int_equal(footer_decode(&got), FMT_OK);
}

static void test_segment__footer_is_bad_when_salt_differs(void **state)
{
	const uint8_t *trailer = bytes + FOOTER_PAGES * FMT_PAGE;
	struct fmt_footer got;

	(void)state;
	sample_footer_file(bytes);
	assert_int_equal(segment_trailer_decode(trailer, SAMPLE_SEGMENT_PAGES, SAMPLE_SALT ^ 1, &got), FMT_BAD);
	assert_int_equal(footer_decode(&got), FMT_OK);
	assert_int_equal(segment_footer_decode(&got, trailer, bytes, 256, SAMPLE_SALT ^ 1, entries), FMT_BAD);
}

static void test_segment__footer_is_bad_when_out_of_bounds(void **state)
{
	enum { TRAILER = FOOTER_PAGES * FMT_PAGE };
	static const struct change changes[] = {
		{"the next version", TRAILER + 8, 4, FMT_VERSION + 1, FMT_NEWER},
		{"no version", TRAILER + 8, 4, 0, FMT_BAD},
		{"an incompat bit", TRAILER + 20, 4, 1, FMT_NEWER},
		{"compat and ro_compat bits", TRAILER + 12, 8, UINT64_MAX, FMT_OK},
		{"reserved bytes", TRAILER + 52, 4, 1, FMT_OK},
		{"more reserved bytes", TRAILER + 4088, 8, 1, FMT_OK},
		{"fewer pages than the entries", TRAILER + 36, 4, 1, FMT_BAD},
		{"more pages than the entries", TRAILER + 36, 4, 3, FMT_BAD},
		{"no entries in two pages", TRAILER + 40, 4, 0, FMT_BAD},
		{"more entries than used pages", TRAILER + 44, 4, 24, FMT_BAD},
		{"entries at the end of numbers", TRAILER + 40, 4, UINT32_MAX, FMT_BAD},
		{"entries over the trailer", TRAILER + 32, 4, 254, FMT_BAD},
		{"entries behind the segment", TRAILER + 32, 4, UINT32_MAX, FMT_BAD},
		{"entries over the groups", TRAILER + 32, 4, 50, FMT_BAD},
		{"entries right behind the groups", TRAILER + 32, 4, 51, FMT_OK},
		{"groups over the entries", TRAILER + 44, 4, 254, FMT_BAD},
		{"sequences the wrong way round", TRAILER + 72, 8, UINT64_C(0x200000001), FMT_BAD},
		{"a payload behind the groups", 24 * 192 + 136, 4, 51, FMT_BAD},
		{"a payload where no group can have one", 136, 4, 0, FMT_BAD},
		{"no bytes", 128, 8, 0, FMT_BAD},
		{"part 64", 156, 2, 64, FMT_BAD},
		{"group 16", 158, 2, 16, FMT_BAD},
		{"a codec", 160, 1, 9, FMT_NEWER},
		{"padding", TRAILER - 1, 1, 1, FMT_OK},
	};
	struct fmt_footer got;

	(void)state;
	for (unsigned i = 0; i < sizeof changes / sizeof changes[0]; i++) {
		sample_footer_file(bytes);
		change_apply(&changes[i], bytes);
		footer_reseal(1);
		if (footer_decode(&got) != changes[i].result)
			fail_msg("%s", changes[i].what);
	}
	/* A good trailer over entries of another sealing. */
	sample_footer_file(bytes);
	bytes[0] ^= 1;
	footer_reseal(0);
	assert_int_equal(footer_decode(&got), FMT_BAD);
	/* A segment too small for anything. */
	sample_footer_file(bytes);
	for (uint32_t pages = 0; pages < SAMPLE_SEGMENT_PAGES; pages++)
		assert_int_equal(segment_trailer_decode(bytes + TRAILER, pages, SAMPLE_SALT, &got), FMT_BAD);
}

static void test_segment__footer_comes_back_when_empty(void **state)
{
	struct fmt_footer footer = {.version = 1, .segment = 3, .life = 4}, got;
	uint8_t trailer[FMT_PAGE];

	(void)state;
	assert_int_equal(segment_footer_entry_pages(0), 0);
	assert_int_equal(segment_footer_entry_pages(1), 1);
	assert_int_equal(segment_footer_entry_pages(21), 1);
	assert_int_equal(segment_footer_entry_pages(22), 2);
	segment_footer_encode(&footer, NULL, 5, NULL, trailer);
	assert_int_equal(segment_trailer_decode(trailer, 16, 5, &got), FMT_OK);
	same_footer(&got, &footer);
	assert_int_equal(segment_footer_decode(&got, trailer, NULL, 16, 5, NULL), FMT_OK);
}

/* ---- check of a part ---- */

static void test_segment__stored_check_differs_when_any_field_does(void **state)
{
	uint8_t key[32], space[32];
	uint64_t seen[7];

	(void)state;
	sample_fill(key, 32, 1);
	sample_fill(space, 32, 2);
	seen[0] = segment_stored_check(key, space, 3, 4, 5, 0, 6);
	seen[1] = segment_stored_check(space, key, 3, 4, 5, 0, 6);
	seen[2] = segment_stored_check(key, space, 4, 4, 5, 0, 6);
	seen[3] = segment_stored_check(key, space, 3, 5, 5, 0, 6);
	seen[4] = segment_stored_check(key, space, 3, 4, 4, 0, 6);
	seen[5] = segment_stored_check(key, space, 3, 4, 5, 1, 6);
	seen[6] = segment_stored_check(key, space, 3, 4, 5, 0, 7);
	for (unsigned i = 0; i < 7; i++)
		for (unsigned j = 0; j < i; j++)
			assert_int_not_equal(seen[i], seen[j]);
	for (unsigned bit = 0; bit < 256; bit++) {
		key[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_int_not_equal(segment_stored_check(key, space, 3, 4, 5, 0, 6), seen[0]);
		key[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	/* It is on devices: it never changes. */
	assert_int_equal(seen[0], UINT64_C(0x526cd7be8983d6aa));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_segment__blank_is_no_label_and_any_flipped_bit_is_damage),
		cmocka_unit_test(test_segment__label_decodes_golden),
		cmocka_unit_test(test_segment__label_is_bad_when_any_byte_differs),
		cmocka_unit_test(test_segment__label_is_bad_when_out_of_bounds),
		cmocka_unit_test(test_segment__group_decodes_golden),
		cmocka_unit_test(test_segment__group_is_bad_when_any_byte_differs),
		cmocka_unit_test(test_segment__group_is_bad_when_salt_differs),
		cmocka_unit_test(test_segment__group_is_bad_when_cut_or_too_large),
		cmocka_unit_test(test_segment__group_is_bad_when_out_of_bounds),
		cmocka_unit_test(test_segment__group_hides_unknown_flags_when_decoded),
		cmocka_unit_test(test_segment__peek_believes_no_version_when_unproven),
		cmocka_unit_test(test_segment__peek_is_bad_when_not_a_group),
		cmocka_unit_test(test_segment__group_comes_back_when_of_any_size),
		cmocka_unit_test(test_segment__footer_decodes_golden),
		cmocka_unit_test(test_segment__footer_is_bad_when_any_byte_differs),
		cmocka_unit_test(test_segment__footer_is_bad_when_salt_differs),
		cmocka_unit_test(test_segment__footer_is_bad_when_out_of_bounds),
		cmocka_unit_test(test_segment__footer_comes_back_when_empty),
		cmocka_unit_test(test_segment__stored_check_differs_when_any_field_does),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
