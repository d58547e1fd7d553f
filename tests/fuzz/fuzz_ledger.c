/* SPDX-License-Identifier: Apache-2.0 */
/* A page of the ledger and its records. Input: the page, its zeros at the end left out. */
#include "fmt/ledger.h"

#include "fuzz/fuzz.h"

/* Every known record goes through encode and decode once more. */
static void try(const uint8_t page[FMT_PAGE])
{
	static uint8_t again[FMT_PAGE], twice[FMT_PAGE];
	struct ledger_record record, copy;
	struct ledger_page head;
	uint32_t at = 0, before = 0;

	if (ledger_page_open(page, &head) != FMT_OK)
		return;
	while (ledger_record_next(page + LEDGER_HEAD_BYTES, head.used, &at, &record) == 1) {
		uint32_t used, next = 0;

		check(at > before && at <= head.used);
		before = at;
		if (record.type > LEDGER_MARK)
			continue;
		used = ledger_record_add(&record, again, 0);
		check(used && ledger_record_next(again, used, &next, &copy) == 1 && next == used);
		check(ledger_record_add(&copy, twice, 0) == used && memcmp(again, twice, used) == 0);
	}
	memcpy(again, page, FMT_PAGE);
	ledger_page_seal(&head, again);
	check(ledger_page_open(again, &head) == FMT_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t page[FMT_PAGE];

	fuzz_take(&data, &size, page, sizeof page);
	try(page);
	frame_seal(page, FMT_PAGE, frame_seed("CAIRNLED"));
	try(page);
	return 0;
}
