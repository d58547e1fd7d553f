/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file `cairn.gone` of a store's directory: keys that left, and why, so that `cairn explain` can tell after a
 * restart. A convenience: it is written at a clean close, and whatever is wrong with it means that nothing is
 * remembered. Pure.
 */
#ifndef CAIRN_FMT_GONE_H
#define CAIRN_FMT_GONE_H

#include <stddef.h>
#include <stdint.h>

#define GONE_HEAD_BYTES 4096u
#define GONE_CELL_BYTES 16u
#define GONE_CELLS_MAX 65536u

struct gone_cell {
	uint64_t print;  /* gone_print; never 0 */
	uint32_t when_s; /* wall clock */
	uint16_t uses;
	uint8_t tier, reason; /* of cairn.h */
};

/* A remembered part's fingerprint: XXH3-64 over {space id, first half of the key, part}; never 0. */
uint64_t gone_print(const uint8_t space[32], const uint8_t prefix[16], uint32_t part);
/* Bytes of a file of n cells: a multiple of a page. */
size_t gone_size(uint32_t ncells);
void gone_encode(const struct gone_cell *cells, uint32_t ncells, uint32_t version, uint8_t *bytes);
/* Decodes foreign bytes: FMT_OK, FMT_BAD or FMT_NEWER. `cells` has room for GONE_CELLS_MAX. */
int gone_decode(const uint8_t *bytes, size_t length, struct gone_cell *cells, uint32_t *ret_ncells);

#endif
