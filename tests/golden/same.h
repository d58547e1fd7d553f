/* SPDX-License-Identifier: Apache-2.0 */
/* For unit tests of formats: whether decoded structs are the samples, field by field (padding may differ), and whether
 * today's code writes the bytes of a golden file. Include cmocka.h before. */
#ifndef CAIRN_TESTS_GOLDEN_SAME_H
#define CAIRN_TESTS_GOLDEN_SAME_H

#include "fmt/frame.h"
#include "golden/samples.h"

/* The golden file's bytes must be those that today's code makes of the sample; they are left in `golden`. */
static inline size_t same_golden(const char *name, size_t (*make)(uint8_t *bytes), uint8_t golden[SAMPLE_FILE_MAX])
{
	static uint8_t made[SAMPLE_FILE_MAX];
	size_t length;

	memset(made, 0xee, sizeof made);
	length = make(made);
	assert_int_equal(sample_read(name, golden), length);
	assert_memory_equal(made, golden, length);
	return length;
}

static inline void same_entry(const struct fmt_entry *a, const struct fmt_entry *b)
{
	assert_memory_equal(a->key, b->key, 32);
	assert_memory_equal(a->space, b->space, 32);
	assert_memory_equal(a->parent, b->parent, 32);
	assert_int_equal(a->part, b->part);
	assert_int_equal(a->group, b->group);
	assert_int_equal(a->codec, b->codec);
	assert_int_equal(a->flags, b->flags);
	assert_int_equal(a->raw_length, b->raw_length);
	assert_int_equal(a->stored_length, b->stored_length);
	assert_int_equal(a->page, b->page);
	assert_int_equal(a->raw_check, b->raw_check);
	assert_memory_equal(a->stored_check, b->stored_check, 16);
	assert_int_equal(a->key_id, b->key_id);
	assert_memory_equal(a->nonce, b->nonce, 12);
	assert_int_equal(a->birth, b->birth);
}

static inline void same_group(const struct fmt_group *a, const struct fmt_group *b)
{
	assert_int_equal(a->version, b->version);
	assert_int_equal(a->segment, b->segment);
	assert_int_equal(a->life, b->life);
	assert_int_equal(a->sequence, b->sequence);
	assert_int_equal(a->flushed_through, b->flushed_through);
	assert_int_equal(a->ledger_sequence, b->ledger_sequence);
	assert_int_equal(a->first_page, b->first_page);
	assert_int_equal(a->index_pages, b->index_pages);
	assert_int_equal(a->total_pages, b->total_pages);
	assert_int_equal(a->nentries, b->nentries);
	assert_memory_equal(a->tenant, b->tenant, 16);
}

static inline void same_footer(const struct fmt_footer *a, const struct fmt_footer *b)
{
	assert_int_equal(a->version, b->version);
	assert_int_equal(a->segment, b->segment);
	assert_int_equal(a->life, b->life);
	assert_int_equal(a->first_sequence, b->first_sequence);
	assert_int_equal(a->last_sequence, b->last_sequence);
	assert_int_equal(a->flushed_through, b->flushed_through);
	assert_int_equal(a->nentries, b->nentries);
	assert_int_equal(a->entries_page, b->entries_page);
	assert_int_equal(a->entries_pages, b->entries_pages);
	assert_int_equal(a->used_pages, b->used_pages);
	assert_memory_equal(a->tenant, b->tenant, 16);
}

#endif
