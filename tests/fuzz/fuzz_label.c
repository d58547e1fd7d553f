/* SPDX-License-Identifier: Apache-2.0 */
/* A device's label. Input: the page, its zeros at the end left out. */
#include "fuzz/fuzz.h"

static void try(const uint8_t page[FMT_PAGE])
{
	uint8_t again[FMT_PAGE], twice[FMT_PAGE];
	struct fmt_label label;

	uint64_t bytes;

	if (segment_blank_decode(page, &bytes) == FMT_OK) {
		segment_blank_encode(bytes, again);
		check(segment_blank_decode(again, &bytes) == FMT_OK);
	}
	if (segment_label_decode(page, &label) != FMT_OK)
		return;
	segment_label_encode(&label, again);
	check(segment_label_decode(again, &label) == FMT_OK);
	segment_label_encode(&label, twice);
	check(memcmp(again, twice, FMT_PAGE) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t page[FMT_PAGE];

	fuzz_take(&data, &size, page, sizeof page);
	try(page);
	frame_seal(page, FMT_PAGE, frame_seed("CAIRNDEV"));
	try(page);
	frame_seal(page, FMT_PAGE, frame_seed("CAIRNRAW"));
	try(page);
	return 0;
}
