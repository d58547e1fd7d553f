/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint, read as a stream. Input: u32 pages of all segments, the first 128 bytes of the head, then lives, spaces
 * and entries, one behind the other without padding. */
#include "fmt/checkpoint.h"

#include "fuzz/fuzz.h"

static void try(const uint8_t page[FMT_PAGE], uint64_t pages, const uint8_t *data, size_t size)
{
	uint8_t bytes[CHECKPOINT_ENTRY_BYTES], again[CHECKPOINT_ENTRY_BYTES], head_again[FMT_PAGE];
	struct checkpoint_head head;

	if (checkpoint_head_decode(page, &head) != FMT_OK)
		return;
	check(checkpoint_size(head.nlives, head.nspaces, head.nentries) <= UINT32_MAX);
	checkpoint_head_encode(&head, head_again);
	check(checkpoint_head_decode(head_again, &head) == FMT_OK);
	for (uint32_t i = 0; i < head.nlives && size; i++) {
		struct checkpoint_life life;

		fuzz_take(&data, &size, bytes, CHECKPOINT_LIFE_BYTES);
		checkpoint_life_decode(bytes, &life);
		checkpoint_life_encode(&life, again);
	}
	for (uint32_t i = 0; i < head.nspaces && size; i++)
		fuzz_take(&data, &size, bytes, CHECKPOINT_SPACE_BYTES);
	for (uint32_t i = 0; i < head.nentries && size; i++) {
		struct checkpoint_entry entry, twice;

		fuzz_take(&data, &size, bytes, CHECKPOINT_ENTRY_BYTES);
		if (checkpoint_entry_decode(bytes, head.nspaces, pages, &entry) != FMT_OK)
			continue;
		check(entry.space_index < head.nspaces && entry.part < FMT_PARTS_MAX && entry.group < FMT_GROUPS_MAX);
		check(entry.page + ((uint64_t)entry.stored_length + FMT_PAGE - 1) / FMT_PAGE <= pages);
		checkpoint_entry_encode(&entry, bytes);
		check(checkpoint_entry_decode(bytes, head.nspaces, pages, &twice) == FMT_OK);
		checkpoint_entry_encode(&twice, again);
		check(memcmp(bytes, again, sizeof again) == 0);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t page[FMT_PAGE] = {0};
	uint32_t pages;

	fuzz_take(&data, &size, &pages, sizeof pages);
	fuzz_take(&data, &size, page, 128);
	try(page, pages, data, size);
	frame_seal(page, FMT_PAGE, frame_seed("CAIRNCKP"));
	try(page, pages, data, size);
	return 0;
}
