/* SPDX-License-Identifier: Apache-2.0 */
/* The file of remembered keys. Input: its bytes, the zeros at the end left out. */
#include "fmt/gone.h"

#include "fuzz/fuzz.h"

static struct gone_cell cells[GONE_CELLS_MAX];

static void try(const uint8_t *bytes, size_t length)
{
	uint32_t n = 0;
	if (gone_decode(bytes, length, cells, &n) != FMT_OK)
		return;
	check(n <= GONE_CELLS_MAX && gone_size(n) <= length);
	for (uint32_t i = 0; i < n; i++)
		check(cells[i].print && cells[i].reason);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t bytes[GONE_HEAD_BYTES + 16 * 4096];

	try(data, size);
	fuzz_take(&data, &size, bytes, sizeof bytes);
	uint32_t n = bytes_get32(bytes + 32) % 4097;
	bytes_set32(bytes + 32, n);
	frame_seal(bytes, gone_size(n), frame_seed("CAIRNGON"));
	try(bytes, sizeof bytes);
	return 0;
}
