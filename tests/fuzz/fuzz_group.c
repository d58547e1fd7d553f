/* SPDX-License-Identifier: Apache-2.0 */
/* The index of a commit group. Input: u32 pages of the segment, u32 pages to hand over, then the index, its zeros at
 * the end left out. */
#include "fuzz/fuzz.h"

#define SALT UINT64_C(0x5a17c0ffee15600d)

static struct fmt_entry entries[FMT_GROUP_ENTRIES_MAX];
static uint8_t again[FMT_INDEX_PAGES_MAX * FMT_PAGE], twice[FMT_INDEX_PAGES_MAX * FMT_PAGE];

static void try(const uint8_t *pages, uint32_t npages, uint32_t segment_pages)
{
	struct fmt_group group;
	size_t length;

	if (segment_group_decode(pages, npages, segment_pages, SALT, &group, entries, FMT_GROUP_ENTRIES_MAX) != FMT_OK)
		return;
	for (uint32_t i = 0; i < group.nentries; i++) {
		uint64_t end = entries[i].page + ((uint64_t)entries[i].stored_length + FMT_PAGE - 1) / FMT_PAGE;

		check(entries[i].page >= group.first_page + group.index_pages);
		check(end <= (uint64_t)group.first_page + group.total_pages && end <= segment_pages);
		check(entries[i].raw_length > 0 && entries[i].raw_length <= FMT_PART_BYTES_MAX);
	}
	length = (size_t)group.index_pages * FMT_PAGE;
	if (segment_pages > FMT_SEGMENT_BYTES_MAX / FMT_PAGE)
		return; /* more than we would ever write */
	segment_group_encode(&group, entries, SALT, again);
	check(segment_group_decode(again, group.index_pages, segment_pages, SALT, &group, entries, FMT_GROUP_ENTRIES_MAX) ==
	      FMT_OK);
	segment_group_encode(&group, entries, SALT, twice);
	check(memcmp(again, twice, length) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint32_t sizes[2], npages;
	struct fmt_group group;
	uint8_t *pages;

	fuzz_take(&data, &size, sizes, sizeof sizes);
	npages = 1 + sizes[1] % FMT_INDEX_PAGES_MAX;
	pages = malloc((size_t)npages * FMT_PAGE); /* exact, so that a read too far shows */
	check(pages);
	fuzz_take(&data, &size, pages, (size_t)npages * FMT_PAGE);
	try(pages, npages, sizes[0]);
	if (segment_group_peek(pages, sizes[0], &group) == FMT_OK && group.index_pages <= npages) {
		frame_seal(pages, (size_t)group.index_pages * FMT_PAGE, SALT);
		try(pages, npages, sizes[0]);
	}
	free(pages);
	return 0;
}
