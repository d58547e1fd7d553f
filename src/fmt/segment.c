/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Label, commit group and footer of a flash device: bytes <-> structs. docs/FORMAT.md draws them.
 * Threads: any; pure. Memory: the caller's; nothing is allocated.
 * Invariant: the bounds that decode demands of foreign bytes are the ones that encode checks of ours, by the same code
 * (segment_entry_fits and its like), so that nothing can be written that would not be read.
 */
#include "fmt/segment.h"

#include <assert.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/digest.h"
#include "fmt/frame.h"

static const char segment_label_magic[8] = {'C', 'A', 'I', 'R', 'N', 'D', 'E', 'V'};
static const char segment_blank_magic[8] = {'C', 'A', 'I', 'R', 'N', 'R', 'A', 'W'};
static const char segment_group_magic[8] = {'C', 'A', 'I', 'R', 'N', 'G', 'R', 'P'};
static const char segment_trailer_magic[8] = {'C', 'A', 'I', 'R', 'N', 'F', 'T', 'R'};

/* ---- label ------------------------------------------------------------------------------------------------------- */

enum {
	LABEL_STORE_ID = 32,
	LABEL_DEVICE_ID = 48,
	LABEL_DEVICE_INDEX = 64,
	LABEL_SEGMENT_BYTES = 68,
	LABEL_LEDGER_BYTES = 72,
	LABEL_LEDGER_OFFSET = 80,
	LABEL_SEGMENTS_OFFSET = 88,
};

static int segment_label_fits(const struct fmt_label *label)
{
	uint32_t bytes = label->segment_bytes;

	if (bytes < FMT_SEGMENT_BYTES_MIN || bytes > FMT_SEGMENT_BYTES_MAX || (bytes & (bytes - 1)))
		return 0;
	if (label->device_index >= FMT_DEVICES_MAX || !label->ledger_bytes || label->ledger_bytes % FMT_PAGE)
		return 0;
	if (label->ledger_offset % FMT_PAGE || label->segments_offset % FMT_PAGE)
		return 0;
	/* Half of what an off_t holds leaves room for any segment behind it. */
	if (label->segments_offset > (uint64_t)1 << 62 || label->ledger_offset < 2 * FMT_PAGE)
		return 0;
	return label->ledger_offset <= label->segments_offset &&
	       label->segments_offset - label->ledger_offset >= (uint64_t)4 * label->ledger_bytes;
}

void segment_label_encode(const struct fmt_label *label, uint8_t page[FMT_PAGE])
{
	check(segment_label_fits(label));
	memset(page, 0, FMT_PAGE);
	frame_start(page, segment_label_magic, label->version, &label->bits);
	memcpy(page + LABEL_STORE_ID, label->store_id, 16);
	memcpy(page + LABEL_DEVICE_ID, label->device_id, 16);
	bytes_set32(page + LABEL_DEVICE_INDEX, label->device_index);
	bytes_set32(page + LABEL_SEGMENT_BYTES, label->segment_bytes);
	bytes_set32(page + LABEL_LEDGER_BYTES, label->ledger_bytes);
	bytes_set64(page + LABEL_LEDGER_OFFSET, label->ledger_offset);
	bytes_set64(page + LABEL_SEGMENTS_OFFSET, label->segments_offset);
	frame_seal(page, FMT_PAGE, frame_seed(segment_label_magic));
}

int segment_label_decode(const uint8_t page[FMT_PAGE], struct fmt_label *ret_label)
{
	struct fmt_label label = {0};
	int result = frame_open(page, FMT_PAGE, segment_label_magic, frame_seed(segment_label_magic), &label.version,
	                        &label.bits);

	if (result != FMT_OK)
		return result;
	memcpy(label.store_id, page + LABEL_STORE_ID, 16);
	memcpy(label.device_id, page + LABEL_DEVICE_ID, 16);
	label.device_index = bytes_get32(page + LABEL_DEVICE_INDEX);
	label.segment_bytes = bytes_get32(page + LABEL_SEGMENT_BYTES);
	label.ledger_bytes = bytes_get32(page + LABEL_LEDGER_BYTES);
	label.ledger_offset = bytes_get64(page + LABEL_LEDGER_OFFSET);
	label.segments_offset = bytes_get64(page + LABEL_SEGMENTS_OFFSET);
	if (!segment_label_fits(&label))
		return FMT_BAD;
	*ret_label = label;
	return FMT_OK;
}

enum { BLANK_BYTES = 32 };

void segment_blank_encode(uint64_t bytes, uint8_t page[FMT_PAGE])
{
	memset(page, 0, FMT_PAGE);
	frame_start(page, segment_blank_magic, FMT_VERSION, NULL);
	bytes_set64(page + BLANK_BYTES, bytes);
	frame_seal(page, FMT_PAGE, frame_seed(segment_blank_magic));
}

int segment_blank_decode(const uint8_t page[FMT_PAGE], uint64_t *ret_bytes)
{
	uint32_t version;
	int result = frame_open(page, FMT_PAGE, segment_blank_magic, frame_seed(segment_blank_magic), &version, NULL);
	if (result == FMT_OK)
		*ret_bytes = bytes_get64(page + BLANK_BYTES);
	return result;
}

/* ---- entry ------------------------------------------------------------------------------------------------------- */

enum {
	ENTRY_KEY = 0,
	ENTRY_SPACE = 32,
	ENTRY_PARENT = 64,
	ENTRY_RAW_CHECK = 96,
	ENTRY_STORED_CHECK = 104,
	ENTRY_BIRTH = 120,
	ENTRY_RAW_LENGTH = 128,
	ENTRY_STORED_LENGTH = 132,
	ENTRY_PAGE = 136,
	ENTRY_KEY_ID = 140,
	ENTRY_NONCE = 144,
	ENTRY_PART = 156,
	ENTRY_GROUP = 158,
	ENTRY_CODEC = 160,
	ENTRY_FLAGS = 161,
	ENTRY_RESERVED = 162,

	ENTRY_FLAGS_KNOWN = FMT_PART_TAIL | FMT_PART_MANIFEST | FMT_PART_MOVED,
};
static_assert(ENTRY_RESERVED <= FMT_ENTRY_BYTES, "entry");

/* Whether lengths and numbers are in bounds, and the payload in the pages [from, to) of the segment. */
static int segment_entry_fits(const struct fmt_entry *entry, uint64_t from, uint64_t to)
{
	if (entry->part >= FMT_PARTS_MAX || entry->group >= FMT_GROUPS_MAX)
		return 0;
	if (!entry->raw_length || entry->raw_length > FMT_PART_BYTES_MAX)
		return 0;
	if (!entry->stored_length || entry->stored_length > FMT_PART_BYTES_MAX)
		return 0;
	if (!entry->codec && entry->raw_length != entry->stored_length)
		return 0;
	return entry->page >= from &&
	       (uint64_t)entry->page + BYTES_ROUND_UP(entry->stored_length, FMT_PAGE) / FMT_PAGE <= to;
}

static void segment_entry_encode(const struct fmt_entry *entry, uint8_t bytes[FMT_ENTRY_BYTES])
{
	check(!entry->codec && !(entry->flags & ~ENTRY_FLAGS_KNOWN));
	memcpy(bytes + ENTRY_KEY, entry->key, 32);
	memcpy(bytes + ENTRY_SPACE, entry->space, 32);
	memcpy(bytes + ENTRY_PARENT, entry->parent, 32);
	bytes_set64(bytes + ENTRY_RAW_CHECK, entry->raw_check);
	memcpy(bytes + ENTRY_STORED_CHECK, entry->stored_check, 16);
	bytes_set64(bytes + ENTRY_BIRTH, entry->birth);
	bytes_set32(bytes + ENTRY_RAW_LENGTH, entry->raw_length);
	bytes_set32(bytes + ENTRY_STORED_LENGTH, entry->stored_length);
	bytes_set32(bytes + ENTRY_PAGE, entry->page);
	bytes_set32(bytes + ENTRY_KEY_ID, entry->key_id);
	memcpy(bytes + ENTRY_NONCE, entry->nonce, 12);
	bytes_set16(bytes + ENTRY_PART, entry->part);
	bytes_set16(bytes + ENTRY_GROUP, entry->group);
	bytes[ENTRY_CODEC] = entry->codec;
	bytes[ENTRY_FLAGS] = entry->flags;
	memset(bytes + ENTRY_RESERVED, 0, FMT_ENTRY_BYTES - ENTRY_RESERVED);
}

static int segment_entry_decode(const uint8_t bytes[FMT_ENTRY_BYTES], uint64_t from, uint64_t to,
                                struct fmt_entry *ret_entry)
{
	struct fmt_entry entry = {0};

	memcpy(entry.key, bytes + ENTRY_KEY, 32);
	memcpy(entry.space, bytes + ENTRY_SPACE, 32);
	memcpy(entry.parent, bytes + ENTRY_PARENT, 32);
	entry.raw_check = bytes_get64(bytes + ENTRY_RAW_CHECK);
	memcpy(entry.stored_check, bytes + ENTRY_STORED_CHECK, 16);
	entry.birth = bytes_get64(bytes + ENTRY_BIRTH);
	entry.raw_length = bytes_get32(bytes + ENTRY_RAW_LENGTH);
	entry.stored_length = bytes_get32(bytes + ENTRY_STORED_LENGTH);
	entry.page = bytes_get32(bytes + ENTRY_PAGE);
	entry.key_id = bytes_get32(bytes + ENTRY_KEY_ID);
	memcpy(entry.nonce, bytes + ENTRY_NONCE, 12);
	entry.part = bytes_get16(bytes + ENTRY_PART);
	entry.group = bytes_get16(bytes + ENTRY_GROUP);
	entry.codec = bytes[ENTRY_CODEC];
	/* A flag that must not be overlooked comes with an incompat bit; others may be. */
	entry.flags = bytes[ENTRY_FLAGS] & ENTRY_FLAGS_KNOWN;
	if (!segment_entry_fits(&entry, from, to))
		return FMT_BAD;
	if (entry.codec)
		return FMT_NEWER;
	*ret_entry = entry;
	return FMT_OK;
}

/* ---- commit group ------------------------------------------------------------------------------------------------ */

enum {
	GROUP_INDEX_PAGES = 32, /* these two belong to the frame: no version moves them */
	GROUP_TOTAL_PAGES = 36,
	GROUP_FIRST_PAGE = 40,
	GROUP_NENTRIES = 44,
	GROUP_SEGMENT = 48,
	GROUP_LIFE = 56,
	GROUP_SEQUENCE = 64,
	GROUP_FLUSHED_THROUGH = 72,
	GROUP_LEDGER_SEQUENCE = 80,
	GROUP_TENANT = 88,
	GROUP_RESERVED = 104,
};
static_assert(GROUP_RESERVED <= FMT_GROUP_HEAD_BYTES, "group head");
static_assert(BYTES_ROUND_UP(FMT_GROUP_HEAD_BYTES + FMT_GROUP_ENTRIES_MAX * FMT_ENTRY_BYTES, FMT_PAGE) ==
              FMT_INDEX_PAGES_MAX * FMT_PAGE, "index of the largest group");

uint32_t segment_index_pages(uint32_t nentries)
{
	check(nentries <= FMT_GROUP_ENTRIES_MAX);
	return BYTES_ROUND_UP(FMT_GROUP_HEAD_BYTES + nentries * FMT_ENTRY_BYTES, FMT_PAGE) / FMT_PAGE;
}

/* What holds for a group of every version. */
static int segment_group_lies_in(const struct fmt_group *group, uint64_t segment_pages)
{
	return group->index_pages >= 1 && group->index_pages <= FMT_INDEX_PAGES_MAX &&
	       group->total_pages >= group->index_pages && group->total_pages <= segment_pages;
}

static int segment_group_fits(const struct fmt_group *group, uint64_t segment_pages)
{
	if (!group->nentries || group->nentries > FMT_GROUP_ENTRIES_MAX || !segment_group_lies_in(group, segment_pages))
		return 0;
	if (group->index_pages != segment_index_pages(group->nentries) || group->total_pages == group->index_pages)
		return 0;
	return (uint64_t)group->first_page + group->total_pages <= segment_pages;
}

void segment_group_encode(const struct fmt_group *group, const struct fmt_entry *entries, uint64_t salt,
                          uint8_t *pages)
{
	uint64_t from = (uint64_t)group->first_page + group->index_pages;
	uint64_t to = (uint64_t)group->first_page + group->total_pages;
	size_t length = (size_t)group->index_pages * FMT_PAGE;

	check(segment_group_fits(group, FMT_SEGMENT_BYTES_MAX / FMT_PAGE));
	memset(pages, 0, length);
	frame_start(pages, segment_group_magic, group->version, NULL);
	bytes_set32(pages + GROUP_INDEX_PAGES, group->index_pages);
	bytes_set32(pages + GROUP_TOTAL_PAGES, group->total_pages);
	bytes_set32(pages + GROUP_FIRST_PAGE, group->first_page);
	bytes_set32(pages + GROUP_NENTRIES, group->nentries);
	bytes_set32(pages + GROUP_SEGMENT, group->segment);
	bytes_set64(pages + GROUP_LIFE, group->life);
	bytes_set64(pages + GROUP_SEQUENCE, group->sequence);
	bytes_set64(pages + GROUP_FLUSHED_THROUGH, group->flushed_through);
	bytes_set64(pages + GROUP_LEDGER_SEQUENCE, group->ledger_sequence);
	memcpy(pages + GROUP_TENANT, group->tenant, 16);
	for (uint32_t i = 0; i < group->nentries; i++) {
		check(segment_entry_fits(&entries[i], from, to));
		segment_entry_encode(&entries[i], pages + FMT_GROUP_HEAD_BYTES + (size_t)i * FMT_ENTRY_BYTES);
	}
	frame_seal(pages, length, salt);
}

static struct fmt_group segment_group_head(const uint8_t *page)
{
	struct fmt_group group = {0};

	group.version = bytes_get32(page + 8);
	group.index_pages = bytes_get32(page + GROUP_INDEX_PAGES);
	group.total_pages = bytes_get32(page + GROUP_TOTAL_PAGES);
	group.first_page = bytes_get32(page + GROUP_FIRST_PAGE);
	group.nentries = bytes_get32(page + GROUP_NENTRIES);
	group.segment = bytes_get32(page + GROUP_SEGMENT);
	group.life = bytes_get64(page + GROUP_LIFE);
	group.sequence = bytes_get64(page + GROUP_SEQUENCE);
	group.flushed_through = bytes_get64(page + GROUP_FLUSHED_THROUGH);
	group.ledger_sequence = bytes_get64(page + GROUP_LEDGER_SEQUENCE);
	memcpy(group.tenant, page + GROUP_TENANT, 16);
	return group;
}

int segment_group_peek(const uint8_t *page, uint32_t segment_pages, struct fmt_group *ret_group)
{
	struct fmt_group group = segment_group_head(page);

	if (memcmp(page, segment_group_magic, 8) != 0 || !segment_group_lies_in(&group, segment_pages))
		return FMT_BAD;
	/* Only of our versions do we know more than the frame. */
	if (!frame_newer(page) && !segment_group_fits(&group, segment_pages))
		return FMT_BAD;
	*ret_group = group;
	return FMT_OK;
}

int segment_group_decode(const uint8_t *pages, uint32_t npages, uint32_t segment_pages, uint64_t salt,
                         struct fmt_group *ret_group, struct fmt_entry *entries, uint32_t max)
{
	struct fmt_group group;
	int result;

	if (!npages || segment_group_peek(pages, segment_pages, &group) != FMT_OK || group.index_pages > npages)
		return FMT_BAD;
	result = frame_open(pages, (size_t)group.index_pages * FMT_PAGE, segment_group_magic, salt, &group.version, NULL);
	if (result != FMT_OK)
		return result;
	if (group.nentries > max)
		return FMT_BAD;

	uint64_t from = (uint64_t)group.first_page + group.index_pages;
	uint64_t to = (uint64_t)group.first_page + group.total_pages;
	pages += FMT_GROUP_HEAD_BYTES;
	for (uint32_t i = 0; i < group.nentries && result == FMT_OK; i++)
		result = segment_entry_decode(pages + (size_t)i * FMT_ENTRY_BYTES, from, to, &entries[i]);
	if (result == FMT_OK)
		*ret_group = group;
	return result;
}

/* ---- footer ------------------------------------------------------------------------------------------------------ */

enum {
	TRAILER_ENTRIES_PAGE = 32,
	TRAILER_ENTRIES_PAGES = 36,
	TRAILER_NENTRIES = 40,
	TRAILER_USED_PAGES = 44,
	TRAILER_SEGMENT = 48,
	TRAILER_LIFE = 56,
	TRAILER_FIRST_SEQUENCE = 64,
	TRAILER_LAST_SEQUENCE = 72,
	TRAILER_FLUSHED_THROUGH = 80,
	TRAILER_TENANT = 88,
	TRAILER_ENTRIES_CHECK = 104,
};

uint32_t segment_footer_entry_pages(uint32_t nentries)
{
	return (uint32_t)(BYTES_ROUND_UP((uint64_t)nentries * FMT_ENTRY_BYTES, FMT_PAGE) / FMT_PAGE);
}

static int segment_footer_fits(const struct fmt_footer *footer, uint64_t segment_pages)
{
	/* Each entry has a page of payload of its own at least: this bounds what a reader must allocate. */
	if (!segment_pages || footer->nentries > footer->used_pages || footer->first_sequence > footer->last_sequence)
		return 0;
	if (footer->entries_pages != segment_footer_entry_pages(footer->nentries))
		return 0;
	return footer->entries_page >= footer->used_pages &&
	       (uint64_t)footer->entries_page + footer->entries_pages <= segment_pages - 1;
}

void segment_footer_encode(const struct fmt_footer *footer, const struct fmt_entry *entries, uint64_t salt,
                           uint8_t *entry_pages, uint8_t trailer[FMT_PAGE])
{
	size_t length = (size_t)footer->entries_pages * FMT_PAGE;

	check(segment_footer_fits(footer, FMT_SEGMENT_BYTES_MAX / FMT_PAGE));
	if (length)
		memset(entry_pages, 0, length);
	for (uint32_t i = 0; i < footer->nentries; i++) {
		check(segment_entry_fits(&entries[i], 1, footer->used_pages));
		segment_entry_encode(&entries[i], entry_pages + (size_t)i * FMT_ENTRY_BYTES);
	}

	memset(trailer, 0, FMT_PAGE);
	frame_start(trailer, segment_trailer_magic, footer->version, NULL);
	bytes_set32(trailer + TRAILER_ENTRIES_PAGE, footer->entries_page);
	bytes_set32(trailer + TRAILER_ENTRIES_PAGES, footer->entries_pages);
	bytes_set32(trailer + TRAILER_NENTRIES, footer->nentries);
	bytes_set32(trailer + TRAILER_USED_PAGES, footer->used_pages);
	bytes_set32(trailer + TRAILER_SEGMENT, footer->segment);
	bytes_set64(trailer + TRAILER_LIFE, footer->life);
	bytes_set64(trailer + TRAILER_FIRST_SEQUENCE, footer->first_sequence);
	bytes_set64(trailer + TRAILER_LAST_SEQUENCE, footer->last_sequence);
	bytes_set64(trailer + TRAILER_FLUSHED_THROUGH, footer->flushed_through);
	memcpy(trailer + TRAILER_TENANT, footer->tenant, 16);
	bytes_set64(trailer + TRAILER_ENTRIES_CHECK, length ? digest_xxh3(entry_pages, length, salt) : 0);
	frame_seal(trailer, FMT_PAGE, salt);
}

int segment_trailer_decode(const uint8_t trailer[FMT_PAGE], uint32_t segment_pages, uint64_t salt,
                           struct fmt_footer *ret_footer)
{
	struct fmt_footer footer = {0};
	int result = frame_open(trailer, FMT_PAGE, segment_trailer_magic, salt, &footer.version, NULL);

	if (result != FMT_OK)
		return result;
	footer.entries_page = bytes_get32(trailer + TRAILER_ENTRIES_PAGE);
	footer.entries_pages = bytes_get32(trailer + TRAILER_ENTRIES_PAGES);
	footer.nentries = bytes_get32(trailer + TRAILER_NENTRIES);
	footer.used_pages = bytes_get32(trailer + TRAILER_USED_PAGES);
	footer.segment = bytes_get32(trailer + TRAILER_SEGMENT);
	footer.life = bytes_get64(trailer + TRAILER_LIFE);
	footer.first_sequence = bytes_get64(trailer + TRAILER_FIRST_SEQUENCE);
	footer.last_sequence = bytes_get64(trailer + TRAILER_LAST_SEQUENCE);
	footer.flushed_through = bytes_get64(trailer + TRAILER_FLUSHED_THROUGH);
	memcpy(footer.tenant, trailer + TRAILER_TENANT, 16);
	if (!segment_footer_fits(&footer, segment_pages))
		return FMT_BAD;
	*ret_footer = footer;
	return FMT_OK;
}

int segment_footer_decode(const struct fmt_footer *footer, const uint8_t *trailer, const uint8_t *entry_pages,
                          uint32_t segment_pages, uint64_t salt, struct fmt_entry *entries)
{
	size_t length = (size_t)footer->entries_pages * FMT_PAGE;
	int result = FMT_OK;

	/* Not foreign bytes: segment_trailer_decode let them pass. */
	check(segment_footer_fits(footer, segment_pages));
	if (length && bytes_get64(trailer + TRAILER_ENTRIES_CHECK) != digest_xxh3(entry_pages, length, salt))
		return FMT_BAD;
	for (uint32_t i = 0; i < footer->nentries && result == FMT_OK; i++)
		result = segment_entry_decode(entry_pages + (size_t)i * FMT_ENTRY_BYTES, 1, footer->used_pages, &entries[i]);
	return result;
}

/* ---- check of a part --------------------------------------------------------------------------------------------- */

uint64_t segment_stored_check(const uint8_t key[32], const uint8_t space[32], uint16_t part, uint32_t raw_length,
                              uint32_t stored_length, uint8_t codec, uint64_t stored_xxh3)
{
	uint8_t bytes[88] = {0};

	memcpy(bytes, key, 32);
	memcpy(bytes + 32, space, 32);
	bytes_set16(bytes + 64, part);
	bytes[66] = codec;
	bytes_set32(bytes + 68, raw_length);
	bytes_set32(bytes + 72, stored_length);
	bytes_set64(bytes + 80, stored_xxh3);
	return digest_xxh3(bytes, sizeof bytes, 0);
}
