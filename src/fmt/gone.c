/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Remembered keys: bytes <-> cells. docs/FORMAT.md draws it.
 * Threads: any; pure. Memory: the caller's.
 */
#include "fmt/gone.h"

#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/digest.h"
#include "fmt/frame.h"

static const char gone_magic[8] = {'C', 'A', 'I', 'R', 'N', 'G', 'O', 'N'};

enum { GONE_COUNT = 32 };

uint64_t gone_print(const uint8_t space[32], const uint8_t prefix[16], uint32_t part)
{
	uint8_t bytes[32 + 16 + 4];
	memcpy(bytes, space, 32);
	memcpy(bytes + 32, prefix, 16);
	bytes_set32(bytes + 48, part);
	uint64_t print = digest_xxh3(bytes, sizeof(bytes), frame_seed(gone_magic));
	return print ? print : 1;
}

size_t gone_size(uint32_t ncells)
{
	return GONE_HEAD_BYTES + BYTES_ROUND_UP((size_t)ncells * GONE_CELL_BYTES, FMT_PAGE);
}

void gone_encode(const struct gone_cell *cells, uint32_t ncells, uint32_t version, uint8_t *bytes)
{
	check(ncells <= GONE_CELLS_MAX);
	memset(bytes, 0, gone_size(ncells));
	frame_start(bytes, gone_magic, version, NULL);
	bytes_set32(bytes + GONE_COUNT, ncells);
	for (uint32_t i = 0; i < ncells; i++) {
		uint8_t *at = bytes + GONE_HEAD_BYTES + (size_t)i * GONE_CELL_BYTES;
		check(cells[i].print);
		bytes_set64(at, cells[i].print);
		bytes_set32(at + 8, cells[i].when_s);
		bytes_set16(at + 12, cells[i].uses);
		at[14] = cells[i].tier;
		at[15] = cells[i].reason;
	}
	frame_seal(bytes, gone_size(ncells), frame_seed(gone_magic));
}

int gone_decode(const uint8_t *bytes, size_t length, struct gone_cell *cells, uint32_t *ret_ncells)
{
	if (length < GONE_HEAD_BYTES)
		return FMT_BAD;
	uint32_t ncells = bytes_get32(bytes + GONE_COUNT);
	if (ncells > GONE_CELLS_MAX || gone_size(ncells) > length)
		return FMT_BAD;
	uint32_t version;
	int result = frame_open(bytes, gone_size(ncells), gone_magic, frame_seed(gone_magic), &version, NULL);
	if (result != FMT_OK)
		return result;
	uint32_t n = 0;
	for (uint32_t i = 0; i < ncells; i++) {
		const uint8_t *at = bytes + GONE_HEAD_BYTES + (size_t)i * GONE_CELL_BYTES;
		cells[n] = (struct gone_cell){.print = bytes_get64(at),
		                              .when_s = bytes_get32(at + 8),
		                              .uses = bytes_get16(at + 12),
		                              .tier = at[14],
		                              .reason = at[15]};
		n += cells[n].print != 0 && cells[n].reason != 0;
	}
	*ret_ncells = n;
	return FMT_OK;
}
