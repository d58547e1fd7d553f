/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the fuzz targets of the formats share. Each input runs twice: as it is, and with its checksum made right, since
 * else nothing would ever get behind the checksum; there an attacker with the salt, and our own defects, would be.
 * What decodes must encode, and decode again to the same.
 */
#ifndef CAIRN_TESTS_FUZZ_FUZZ_H
#define CAIRN_TESTS_FUZZ_FUZZ_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/digest.h"
#include "fmt/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Takes up to `length` bytes of the input; what is missing is zeros. So the corpus needs no pages of zeros. */
static inline void fuzz_take(const uint8_t **data, size_t *size, void *to, size_t length)
{
	size_t taken = *size < length ? *size : length;

	if (taken)
		memcpy(to, *data, taken);
	memset((uint8_t *)to + taken, 0, length - taken);
	*data += taken;
	*size -= taken;
}

#endif
