/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device's checkpoint: bytes <-> structs, piece by piece. docs/FORMAT.md draws it.
 * Threads: any; pure. Memory: the caller's.
 * Invariant: a checkpoint is a hint that can always be done without: whatever is wrong with it, reopening reads footers
 * and indexes instead. So there is one copy, and no repair.
 */
#include "fmt/checkpoint.h"

#include <assert.h>
#include <string.h>

#include "base/check.h"
#include "fmt/frame.h"

static const char checkpoint_magic[8] = {'C', 'A', 'I', 'R', 'N', 'C', 'K', 'P'};

enum {
	HEAD_DEVICE_ID = 32,
	HEAD_SEQUENCE = 48,
	HEAD_BODY_CHECK = 56,
	HEAD_NLIVES = 64,
	HEAD_NSPACES = 68,
	HEAD_NENTRIES = 72,

	LIFE_SEGMENT = 0,
	LIFE_LIFE = 8,

	ENTRY_KEY = 0,
	ENTRY_PARENT = 16,
	ENTRY_CHECK = 32,
	ENTRY_BIRTH = 40,
	ENTRY_PAGE = 48,
	ENTRY_STORED_LENGTH = 52,
	ENTRY_RAW_LENGTH = 56,
	ENTRY_SPACE_INDEX = 60,
	ENTRY_BITS = 62, /* part in bits 0-5, group in 6-9, flags in 10-15 */

	BITS_GROUP = 6,
	BITS_FLAGS = 10,
	FLAGS_KNOWN = FMT_PART_TAIL | FMT_PART_MANIFEST | FMT_PART_MOVED,
};
static_assert(FMT_PARTS_MAX == 1u << BITS_GROUP && FMT_GROUPS_MAX << BITS_GROUP == 1u << BITS_FLAGS, "bits");
static_assert(FLAGS_KNOWN < 1 << (16 - BITS_FLAGS), "bits");
static_assert((uint64_t)FMT_PAGE * 4 + (uint64_t)CHECKPOINT_LIVES_MAX * CHECKPOINT_LIFE_BYTES +
              (uint64_t)CHECKPOINT_SPACES_MAX * CHECKPOINT_SPACE_BYTES +
              (uint64_t)CHECKPOINT_ENTRIES_MAX * CHECKPOINT_ENTRY_BYTES <= UINT32_MAX, "bytes of a checkpoint");

static int checkpoint_head_fits(const struct checkpoint_head *head)
{
	return head->nlives <= CHECKPOINT_LIVES_MAX && head->nspaces <= CHECKPOINT_SPACES_MAX &&
	       head->nentries <= CHECKPOINT_ENTRIES_MAX;
}

void checkpoint_head_encode(const struct checkpoint_head *head, uint8_t page[FMT_PAGE])
{
	check(checkpoint_head_fits(head));
	memset(page, 0, FMT_PAGE);
	frame_start(page, checkpoint_magic, head->version, NULL);
	memcpy(page + HEAD_DEVICE_ID, head->device_id, 16);
	bytes_set64(page + HEAD_SEQUENCE, head->sequence);
	bytes_set64(page + HEAD_BODY_CHECK, head->body_check);
	bytes_set32(page + HEAD_NLIVES, head->nlives);
	bytes_set32(page + HEAD_NSPACES, head->nspaces);
	bytes_set32(page + HEAD_NENTRIES, head->nentries);
	frame_seal(page, FMT_PAGE, frame_seed(checkpoint_magic));
}

int checkpoint_head_decode(const uint8_t page[FMT_PAGE], struct checkpoint_head *ret_head)
{
	struct checkpoint_head head = {0};
	int result = frame_open(page, FMT_PAGE, checkpoint_magic, frame_seed(checkpoint_magic), &head.version, NULL);

	if (result != FMT_OK)
		return result;
	memcpy(head.device_id, page + HEAD_DEVICE_ID, 16);
	head.sequence = bytes_get64(page + HEAD_SEQUENCE);
	head.body_check = bytes_get64(page + HEAD_BODY_CHECK);
	head.nlives = bytes_get32(page + HEAD_NLIVES);
	head.nspaces = bytes_get32(page + HEAD_NSPACES);
	head.nentries = bytes_get32(page + HEAD_NENTRIES);
	if (!checkpoint_head_fits(&head))
		return FMT_BAD;
	*ret_head = head;
	return FMT_OK;
}

void checkpoint_life_encode(const struct checkpoint_life *life, uint8_t bytes[CHECKPOINT_LIFE_BYTES])
{
	memset(bytes, 0, CHECKPOINT_LIFE_BYTES);
	bytes_set32(bytes + LIFE_SEGMENT, life->segment);
	bytes_set64(bytes + LIFE_LIFE, life->life);
}

void checkpoint_life_decode(const uint8_t bytes[CHECKPOINT_LIFE_BYTES], struct checkpoint_life *ret_life)
{
	ret_life->segment = bytes_get32(bytes + LIFE_SEGMENT);
	ret_life->life = bytes_get64(bytes + LIFE_LIFE);
}

static int checkpoint_lengths_fit(const struct checkpoint_entry *entry)
{
	return entry->raw_length && entry->raw_length <= FMT_PART_BYTES_MAX && entry->stored_length &&
	       entry->stored_length <= FMT_PART_BYTES_MAX;
}

void checkpoint_entry_encode(const struct checkpoint_entry *entry, uint8_t bytes[CHECKPOINT_ENTRY_BYTES])
{
	check(checkpoint_lengths_fit(entry) && entry->part < FMT_PARTS_MAX && entry->group < FMT_GROUPS_MAX &&
	      !(entry->flags & ~FLAGS_KNOWN));
	memcpy(bytes + ENTRY_KEY, entry->key_prefix, 16);
	memcpy(bytes + ENTRY_PARENT, entry->parent_prefix, 16);
	bytes_set64(bytes + ENTRY_CHECK, entry->check);
	bytes_set64(bytes + ENTRY_BIRTH, entry->birth);
	bytes_set32(bytes + ENTRY_PAGE, entry->page);
	bytes_set32(bytes + ENTRY_STORED_LENGTH, entry->stored_length);
	bytes_set32(bytes + ENTRY_RAW_LENGTH, entry->raw_length);
	bytes_set16(bytes + ENTRY_SPACE_INDEX, entry->space_index);
	bytes_set16(bytes + ENTRY_BITS,
	            (uint16_t)(entry->part | entry->group << BITS_GROUP | entry->flags << BITS_FLAGS));
}

int checkpoint_entry_decode(const uint8_t bytes[CHECKPOINT_ENTRY_BYTES], uint32_t nspaces, uint64_t pages,
                            struct checkpoint_entry *ret_entry)
{
	struct checkpoint_entry entry = {0};
	uint16_t bits = bytes_get16(bytes + ENTRY_BITS);

	memcpy(entry.key_prefix, bytes + ENTRY_KEY, 16);
	memcpy(entry.parent_prefix, bytes + ENTRY_PARENT, 16);
	entry.check = bytes_get64(bytes + ENTRY_CHECK);
	entry.birth = bytes_get64(bytes + ENTRY_BIRTH);
	entry.page = bytes_get32(bytes + ENTRY_PAGE);
	entry.stored_length = bytes_get32(bytes + ENTRY_STORED_LENGTH);
	entry.raw_length = bytes_get32(bytes + ENTRY_RAW_LENGTH);
	entry.space_index = bytes_get16(bytes + ENTRY_SPACE_INDEX);
	entry.part = bits & (FMT_PARTS_MAX - 1);
	entry.group = bits >> BITS_GROUP & (FMT_GROUPS_MAX - 1);
	entry.flags = bits >> BITS_FLAGS & FLAGS_KNOWN;
	if (!checkpoint_lengths_fit(&entry) || entry.space_index >= nspaces)
		return FMT_BAD;
	if (entry.page + BYTES_ROUND_UP((uint64_t)entry.stored_length, FMT_PAGE) / FMT_PAGE > pages)
		return FMT_BAD;
	*ret_entry = entry;
	return FMT_OK;
}
