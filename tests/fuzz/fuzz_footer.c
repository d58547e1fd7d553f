/* SPDX-License-Identifier: Apache-2.0 */
/* The footer of a segment. Input: u32 pages of the segment, the first 128 bytes of the trailer, then the entries'
 * pages, their zeros at the end left out. */
#include "fuzz/fuzz.h"

#define SALT UINT64_C(0x5a17c0ffee15600d)
#define ENTRIES_PAGES_MAX 64u /* beyond it the input says nothing new */
#define ENTRIES_MAX (ENTRIES_PAGES_MAX * FMT_PAGE / FMT_ENTRY_BYTES)

static struct fmt_entry entries[ENTRIES_MAX];
static uint8_t again[ENTRIES_PAGES_MAX * FMT_PAGE], twice[ENTRIES_PAGES_MAX * FMT_PAGE];

static void try(const uint8_t trailer[FMT_PAGE], uint8_t *pages, uint32_t segment_pages)
{
	uint8_t trailer_again[FMT_PAGE], trailer_twice[FMT_PAGE];
	struct fmt_footer footer;
	size_t length;

	if (segment_trailer_decode(trailer, segment_pages, SALT, &footer) != FMT_OK)
		return;
	if (footer.entries_pages > ENTRIES_PAGES_MAX || segment_pages > FMT_SEGMENT_BYTES_MAX / FMT_PAGE)
		return;
	length = (size_t)footer.entries_pages * FMT_PAGE;
	check(footer.nentries <= ENTRIES_MAX);
	if (segment_footer_decode(&footer, trailer, pages, segment_pages, SALT, entries) != FMT_OK)
		return;
	for (uint32_t i = 0; i < footer.nentries; i++)
		check(entries[i].page + ((uint64_t)entries[i].stored_length + FMT_PAGE - 1) / FMT_PAGE <= footer.used_pages);
	segment_footer_encode(&footer, entries, SALT, again, trailer_again);
	check(segment_trailer_decode(trailer_again, segment_pages, SALT, &footer) == FMT_OK);
	check(segment_footer_decode(&footer, trailer_again, again, segment_pages, SALT, entries) == FMT_OK);
	segment_footer_encode(&footer, entries, SALT, twice, trailer_twice);
	check(memcmp(again, twice, length) == 0 && memcmp(trailer_again, trailer_twice, FMT_PAGE) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t pages[ENTRIES_PAGES_MAX * FMT_PAGE];
	uint8_t trailer[FMT_PAGE] = {0};
	uint32_t segment_pages, entries_pages;

	fuzz_take(&data, &size, &segment_pages, sizeof segment_pages);
	fuzz_take(&data, &size, trailer, 128);
	fuzz_take(&data, &size, pages, sizeof pages);
	try(trailer, pages, segment_pages);
	frame_seal(trailer, FMT_PAGE, SALT);
	try(trailer, pages, segment_pages);
	entries_pages = bytes_get32(trailer + 36);
	if (entries_pages <= ENTRIES_PAGES_MAX) {
		bytes_set64(trailer + 104, digest_xxh3(pages, (size_t)entries_pages * FMT_PAGE, SALT));
		frame_seal(trailer, FMT_PAGE, SALT);
		try(trailer, pages, segment_pages);
	}
	return 0;
}
